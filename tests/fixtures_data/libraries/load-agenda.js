// Load the jobs of a database with Agenda, and run what is due: node load-agenda.js PACKAGES URI COLLECTION < instants.json
// Prints for each job what the library makes of it. It changes the documents: every time that is to come is moved to now.
const path = require('path')
const { createRequire } = require('module')
const { pathToFileURL } = require('url')
const [, , packages, uri, collection] = process.argv
const instants = JSON.parse(require('fs').readFileSync(0, 'utf8'))
const here = createRequire(path.join(packages, 'package.json'))
const PATIENCE = 200000 // milliseconds for all that is due
const until = async (condition, missing) => {
  const end = Date.now() + PATIENCE
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`what was due did not run, or did not end: ${JSON.stringify(await missing())}`)
    await new Promise((done) => setTimeout(done, 20))
  }
}

async function main() {
  const { MongoClient } = here('mongodb')
  const client = await MongoClient.connect(uri)
  const jobs = client.db().collection(collection)
  const options = { processEvery: 3000, maxConcurrency: 1000, defaultConcurrency: 1000 }
  let agenda, load
  if (packages.includes('agenda-4')) {
    const Agenda = here('agenda')
    agenda = new Agenda({ ...options, db: { address: uri, collection } })
    await new Promise((done) => agenda.once('ready', done))
    load = () => agenda.jobs({})
  } else {
    const { Agenda, Job } = await import(pathToFileURL(here.resolve('agenda')))
    const { MongoBackend } = await import(pathToFileURL(here.resolve('@agendajs/mongo-backend')))
    agenda = new Agenda({ ...options, backend: new MongoBackend({ address: uri, collection }) })
    await agenda.ready
    load = async () => (await agenda.queryJobs({})).jobs.map((attributes) => new Job(agenda, attributes))
  }
  agenda.on('error', (error) => { console.error(error); process.exit(1) })

  const report = {}
  const fired = (job, first) => {
    const fires = []
    job.attrs.lastRunAt = new Date(first)
    for (let number = 0; number < 5; number += 1) {
      job.attrs.nextRunAt = job.attrs.lastRunAt
      job.computeNextRunAt()
      if (!job.attrs.nextRunAt) break
      fires.push(job.attrs.nextRunAt.toISOString())
      job.attrs.lastRunAt = job.attrs.nextRunAt
    }
    return fires
  }
  for (const job of await load()) {
    const repeats = job.attrs.repeatInterval || job.attrs.repeatAt
    report[job.attrs._id] = {
      next: job.attrs.nextRunAt ? job.attrs.nextRunAt.toISOString() : null,
      fires: repeats ? instants.map((first) => fired(job, first)) : null,
      ran: false,
    }
  }

  const ran = new Set()
  for (const name of await jobs.distinct('name')) agenda.define(name, async (job) => { ran.add(String(job.attrs._id)) })
  await jobs.updateMany({ nextRunAt: { $ne: null } }, { $set: { nextRunAt: new Date(Date.now() - 1000) } })
  // A job that has a time, and is neither disabled nor locked: Agenda's own condition.
  const due = (await jobs.find({ nextRunAt: { $ne: null }, disabled: { $ne: true }, lockedAt: null }).toArray())
  await agenda.start()
  const waiting = () => due.filter((job) => !ran.has(String(job._id)))
  await until(() => waiting().length === 0, () => waiting().map((job) => [job._id, job.name]))
  // All of them were written back, as of jobs that ended.
  const open = { $expr: { $lt: ['$lastFinishedAt', '$lastRunAt'] }, _id: { $in: due.map((job) => job._id) } }
  await until(async () => (await jobs.countDocuments(open)) === 0, () => jobs.distinct('_id', open))
  for (const key of ran) report[key].ran = true
  process.stdout.write(JSON.stringify(report), () => process.exit(0))
}
main().catch((error) => { console.error(error); process.exit(1) })
