// What Agenda 6 does on a backend: node agenda-behaviours.mjs PACKAGES < request.json
// The request has `mongodb` (uri, database) or `postgresql` (uri). The headings are those of Agenda's own shared suite,
// which its package does not contain. Prints {name: observed} as JSON; what should be observed is in
// agenda-behaviours.json. A behaviour waits for a condition, and never for a time to pass.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const here = createRequire(path.join(process.argv[2], 'package.json'))
const { Agenda, backoffStrategies } = await import(pathToFileURL(here.resolve('agenda')))
const { MongoBackend } = await import(pathToFileURL(here.resolve('@agendajs/mongo-backend')))
const { PostgresBackend } = await import(pathToFileURL(here.resolve('@agendajs/postgres-backend')))
const request = JSON.parse(readFileSync(0, 'utf8'))
const PATIENCE = 100000 // milliseconds until something that must come is missed
const client = request.mongodb && (await here('mongodb').MongoClient.connect(request.mongodb.uri))
const started = []

/** Return an application on the backend, which knows no jobs yet. */
async function application(options = {}) {
  const backend = client
    ? new MongoBackend({ mongo: client.db(request.mongodb.database) })
    : new PostgresBackend({ connectionString: request.postgresql.uri })
  const agenda = new Agenda({ backend, processEvery: 50, name: `application ${started.length}`, ...options })
  agenda.errors = []
  agenda.on('error', (error) => agenda.errors.push(error.message))
  await agenda.ready
  started.push(agenda)
  return agenda
}

async function until(condition) {
  const end = Date.now() + PATIENCE
  for (;;) {
    const found = await condition()
    if (found) return found
    if (Date.now() > end) throw new Error(`nothing came for ${condition}`)
    await new Promise((done) => setTimeout(done, 10))
  }
}

const ago = (ms) => new Date(Date.now() - ms)
const FAR = new Date('2031-06-01T07:00:00.123Z')
const jobs = async (agenda, query = {}) => (await agenda.queryJobs(query)).jobs
const job = async (agenda, name) => (await jobs(agenda, { name }))[0]
const names = (found) => found.map(({ name }) => name).sort()
const outcome = async (action) => {
  try {
    return await action()
  } catch (error) {
    return `refused: ${error.message}`
  }
}
/** Return which of the fields of the run are set. */
const run = (found) =>
  Object.fromEntries(['lockedAt', 'lastRunAt', 'lastFinishedAt', 'failedAt'].map((name) => [name, found[name] instanceof Date]))
const ended = async (agenda, name, number = 1) => {
  let count = 0
  return new Promise((done) => agenda.on(`complete:${name}`, () => (count += 1) === number && done()))
}
/** Put a job into the state of one that ran, as the processor does. */
async function ran(agenda, name, state) {
  const found = await job(agenda, name)
  await agenda.db.saveJobState({ ...found, ...state })
}
const RAN = { lockedAt: new Date(), lastRunAt: ago(1000), lastFinishedAt: ago(2000), failCount: 2, failReason: 'x', failedAt: ago(2000), progress: 40 }
const left = (found) => ({ ...run(found), failCount: found.failCount ?? null, failReason: found.failReason ?? null, progress: found.progress ?? null })

const behaviours = {
  // ------------------------------------------------------------------------------------------------------- repository
  'repository: a new job has its defaults': async () => {
    const agenda = await application()
    await agenda.create('a').schedule(FAR).save()
    const { _id, nextRunAt, state, lastModifiedBy, ...fields } = await job(agenda, 'a')
    return { id: /^[0-9a-f]{24}$/.test(_id) ? 'ObjectId' : 'uuid', same: nextRunAt.getTime() === FAR.getTime(), state, fields: Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) }
  },
  'repository: an id of another form': async () => {
    const agenda = await application()
    return outcome(async () => (await jobs(agenda, { id: 'no id' })).length)
  },
  'repository: cancel with an id of another form': async () => {
    const agenda = await application()
    return outcome(() => agenda.cancel({ id: 'no id' }))
  },
  'repository: search takes % and _ as they are': async () => {
    const agenda = await application()
    for (const name of ['50% off', '500 offers', 'a_b', 'aXb']) await agenda.schedule(FAR, name)
    return { percent: names(await jobs(agenda, { search: '50% o' })), line: names(await jobs(agenda, { search: 'a_b' })), upper: names(await jobs(agenda, { search: '50% OFF' })) }
  },
  'repository: data is queried by a part of it': async () => {
    const agenda = await application()
    await agenda.schedule(FAR, 'a', { user: { id: 7, name: 'x' }, tags: ['p', 'q'] })
    await agenda.schedule(FAR, 'b', { user: { id: 8 } })
    return { nested: names(await jobs(agenda, { data: { user: { id: 7 } } })), element: names(await jobs(agenda, { data: { tags: 'p' } })), list: names(await jobs(agenda, { data: { tags: ['p'] } })), absent: names(await jobs(agenda, { data: { tags: null } })) }
  },
  'repository: jobs without a time are last when the latest are first': async () => {
    const agenda = await application()
    await agenda.schedule(FAR, 'later')
    await agenda.schedule(ago(0), 'sooner')
    await agenda.create('never').repeatEvery('no rule').save()
    return { default: (await jobs(agenda)).map(({ name }) => name), ascending: (await jobs(agenda, { sort: { nextRunAt: 'asc' } })).map(({ name }) => name) }
  },
  'repository: disable and enable return a number of jobs': async () => {
    const agenda = await application()
    for (const number of [1, 2]) await agenda.schedule(FAR, 'a', { number })
    return [await agenda.disable({ name: 'a' }), await agenda.disable({ name: 'a' }), await agenda.enable({ name: 'a' }), await agenda.enable({ name: 'a' }), await agenda.disable({})]
  },
  'repository: jobs are removed by name, by other names, and never without a condition': async () => {
    const agenda = await application()
    for (const name of ['a', 'b', 'c', 'd']) await agenda.schedule(FAR, name)
    const counts = [await agenda.cancel({}), await agenda.cancel({ name: 'a' }), await agenda.cancel({ names: ['b', 'x'] })]
    agenda.define('c', () => {})
    return [...counts, await agenda.purge(), names(await jobs(agenda))]
  },
  'repository: the overview counts states': async () => {
    const agenda = await application()
    await agenda.every('1 day', 'a')
    await agenda.schedule(FAR, 'b')
    await agenda.create('b').schedule(ago(1000)).disable().save()
    return { overview: (await agenda.getJobsOverview()).sort((x, y) => (x.name < y.name ? -1 : 1)), due: await agenda.db.getQueueSize() }
  },
  'repository: saving a single job again keeps its next run if the new one is due': async () => {
    const agenda = await application()
    const first = await agenda.every('1 day', 'a', { v: 1 }, { skipImmediate: true })
    await agenda.every('2 days', 'a', { v: 2 })
    const [found, ...others] = await jobs(agenda)
    return { others: others.length, data: found.data, interval: found.repeatInterval, kept: found.nextRunAt.getTime() === first.attrs.nextRunAt.getTime() }
  },
  'repository: saving a single job again sets a next run that was null': async () => {
    const agenda = await application()
    await agenda.every('1 day', 'a', {}, { endDate: ago(1000) })
    const before = (await job(agenda, 'a')).nextRunAt
    await agenda.every('1 day', 'a')
    return { before, isSet: (await job(agenda, 'a')).nextRunAt instanceof Date }
  },
  'repository: saving a single job again leaves its lock and its last run': async () => {
    const agenda = await application()
    await agenda.every('1 day', 'a')
    await ran(agenda, 'a', RAN)
    await agenda.every('1 day', 'a')
    return left(await job(agenda, 'a'))
  },
  'repository: saving a job that was loaded leaves its lock and its last run': async () => {
    const agenda = await application()
    const created = await agenda.schedule(FAR, 'a')
    await ran(agenda, 'a', RAN)
    await created.save()
    return left(await job(agenda, 'a'))
  },
  'repository: progress is kept to its last digit': async () => {
    const agenda = await application()
    await agenda.schedule(FAR, 'a')
    await ran(agenda, 'a', { progress: 33.333333333 })
    const first = (await job(agenda, 'a')).progress
    await ran(agenda, 'a', { progress: 33.3 })
    return [first, (await job(agenda, 'a')).progress]
  },
  'repository: a number as interval': async () => {
    const agenda = await application()
    await agenda.every(5400000, 'a')
    const { repeatInterval } = await job(agenda, 'a')
    return [typeof repeatInterval, String(repeatInterval)]
  },
  // ----------------------------------------------------------------------------------------------------------- unique
  'unique: a second save changes the first job': async () => {
    const agenda = await application()
    for (const v of [1, 2]) await agenda.create('a', { k: 'x', v }).unique({ 'data.k': 'x' }).schedule(FAR).save()
    return (await jobs(agenda)).map(({ data }) => data)
  },
  'unique: insert only keeps the first job': async () => {
    const agenda = await application()
    for (const v of [1, 2]) await agenda.create('a', { k: 'x', v }).unique({ 'data.k': 'x' }, { insertOnly: true }).schedule(FAR).save()
    return (await jobs(agenda)).map(({ data }) => data)
  },
  'unique: a path of several steps': async () => {
    const agenda = await application()
    for (const v of [1, 2]) await agenda.create('a', { user: { id: 7 }, v }).unique({ 'data.user.id': 7 }).schedule(FAR).save()
    return (await jobs(agenda)).length
  },
  'unique: null': async () => {
    const agenda = await application()
    for (const v of [1, 2]) await agenda.create('a', { k: null, v }).unique({ 'data.k': null }).schedule(FAR).save()
    return (await jobs(agenda)).length
  },
  'unique: a number and the same digits as text': async () => {
    const agenda = await application()
    for (const k of [1, '1']) await agenda.create('a', { k }).unique({ 'data.k': k }).schedule(FAR).save()
    return (await jobs(agenda)).length
  },
  'unique: an object': async () => {
    const agenda = await application()
    for (const v of [1, 2]) await agenda.create('a', { k: { x: 1 }, v }).unique({ 'data.k': { x: 1 } }).schedule(FAR).save()
    return (await jobs(agenda)).length
  },
  'unique: an operator of MongoDB': async () => {
    const agenda = await application()
    await agenda.schedule(FAR, 'a', { k: 5 })
    await agenda.create('a', { k: 6 }).unique({ 'data.k': { $gt: 4 } }).schedule(FAR).save()
    return (await jobs(agenda)).length
  },
  'unique: a field that jobs do not have': async () => {
    const agenda = await application()
    return outcome(async () => {
      await agenda.create('a', {}).unique({ customer: 7 }).schedule(FAR).save()
      return (await jobs(agenda)).length
    })
  },
  // --------------------------------------------------------------------------------------------------------- debounce
  'debounce: each save puts the run off': async () => {
    const agenda = await application()
    const times = []
    for (const v of [1, 2, 3]) {
      await new Promise((done) => setTimeout(done, 5))
      const saved = await agenda.create('a', { k: 1, v }).unique({ 'data.k': 1 }).debounce(3600000).save()
      times.push(saved.attrs.nextRunAt.getTime())
    }
    const [found, ...others] = await jobs(agenda)
    return { others: others.length, data: found.data, later: times[0] < times[1] && times[1] < times[2], began: found.debounceStartedAt instanceof Date }
  },
  'debounce: leading keeps the first time': async () => {
    const agenda = await application()
    const times = []
    for (const v of [1, 2]) {
      const saved = await agenda.create('a', { k: 1, v }).schedule(v === 1 ? FAR : ago(0)).unique({ 'data.k': 1 }).debounce(1000, { strategy: 'leading' }).save()
      times.push(saved.attrs.nextRunAt.getTime())
    }
    return { same: times[0] === times[1], data: (await jobs(agenda)).map(({ data }) => data) }
  },
  'debounce: after maxWait it runs at once': async () => {
    const agenda = await application()
    const save = () => agenda.create('a', { k: 1 }).unique({ 'data.k': 1 }).debounce(3600000, { maxWait: 20 }).save()
    const first = await save()
    await until(() => Date.now() - first.attrs.debounceStartedAt.getTime() >= 20)
    const second = await save()
    return { isDue: second.attrs.nextRunAt <= new Date(), began: (await job(agenda, 'a')).debounceStartedAt ?? null }
  },
  'debounce: nowDebounced waits for its delay': async () => {
    const agenda = await application()
    const saved = await agenda.nowDebounced('a', { k: 1 }, { 'data.k': 1 }, 3600000)
    return saved.attrs.nextRunAt > new Date()
  },
  // ---------------------------------------------------------------------------------------------------- job processor
  'processor: a due job runs once, and is not due again': async () => {
    const agenda = await application()
    const seen = []
    agenda.define('a', async (found) => { seen.push(found.attrs.data) })
    await agenda.now('a', { v: 1 })
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    const found = await job(agenda, 'a')
    return { seen, run: run(found), nextRunAt: found.nextRunAt, state: found.state }
  },
  'processor: a repeated job gets its next time': async () => {
    const agenda = await application()
    agenda.define('a', async () => {})
    await agenda.every('1 day', 'a')
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    const found = await job(agenda, 'a')
    return { day: found.nextRunAt.getTime() - found.lastRunAt.getTime(), state: found.state }
  },
  'processor: what is disabled, locked, not due or of no handler stays': async () => {
    const agenda = await application()
    const seen = []
    for (const name of ['disabled', 'later', 'locked', 'last']) agenda.define(name, async () => { seen.push(name) })
    await agenda.create('disabled').schedule(ago(1000)).disable().save()
    await agenda.schedule(FAR, 'later')
    await agenda.schedule(ago(1000), 'locked')
    await ran(agenda, 'locked', { lockedAt: new Date() })
    await agenda.schedule(ago(1000), 'unknown')
    await agenda.schedule(ago(500), 'last')
    const end = ended(agenda, 'last')
    await agenda.start()
    await end
    return seen
  },
  'processor: a lock that is older than its lifetime is taken': async () => {
    const agenda = await application({ defaultLockLifetime: 60000 })
    agenda.define('a', async () => {})
    await agenda.schedule(FAR, 'a')
    await ran(agenda, 'a', { lockedAt: ago(61000), nextRunAt: null, lastRunAt: ago(61000) })
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    return run(await job(agenda, 'a'))
  },
  'processor: two applications run each job once': async () => {
    const pair = [await application(), await application()]
    const seen = []
    for (const agenda of pair) agenda.define('a', async (found) => { seen.push(found.attrs.data.number) }, { lockLimit: 2 })
    for (let number = 0; number < 40; number += 1) await pair[0].now('a', { number })
    for (const agenda of pair) await agenda.start()
    await until(() => seen.length >= 40)
    for (const agenda of pair) await agenda.drain({ closeConnection: false })
    return { runs: seen.length, jobs: new Set(seen).size }
  },
  'processor: priority decides among what is due at one time': async () => {
    const agenda = await application({ maxConcurrency: 1 })
    const seen = []
    agenda.define('a', async (found) => { seen.push(found.attrs.priority) }, { concurrency: 1 })
    const time = ago(1000)
    for (const priority of [0, 20, -10, 10]) await agenda.create('a', {}).schedule(time).priority(priority).save()
    await agenda.start()
    await until(() => seen.length === 4)
    return seen
  },
  'processor: touch stores progress and the lock': async () => {
    const agenda = await application()
    let during
    agenda.define('a', async (found) => {
      await found.touch(40)
      during = await job(agenda, 'a')
    })
    await agenda.now('a')
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    return { progress: during.progress, locked: during.lockedAt instanceof Date, state: during.state }
  },
  'processor: a job that failed tells why': async () => {
    const agenda = await application()
    agenda.define('a', async () => { throw new Error('no such table') })
    await agenda.now('a')
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    return left(await job(agenda, 'a'))
  },
  'processor: an error whose words hold NUL': async () => {
    const agenda = await application()
    agenda.define('a', async () => { throw new Error('a\0b') })
    await agenda.now('a')
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    return left(await job(agenda, 'a'))
  },
  'processor: drain waits for what runs, and stop leaves it locked': async () => {
    const agenda = await application()
    let go
    agenda.define('a', () => new Promise((done) => { go = done }))
    await agenda.now('a')
    await agenda.start()
    await until(() => go)
    const drained = agenda.drain({ closeConnection: false })
    go()
    const first = await drained
    go = undefined
    await agenda.now('a')
    await agenda.start()
    await until(() => go)
    await agenda.stop(false)
    const open = (await jobs(agenda)).filter(({ lockedAt }) => lockedAt).length
    go()
    return { first, open }
  },
  // ------------------------------------------------------------------------------------------------ retry and backoff
  'retry: a job is tried again as often as its backoff says': async () => {
    const agenda = await application()
    const told = []
    agenda.define('a', async () => { throw new Error('down') }, { backoff: backoffStrategies.constant({ delay: 5, maxRetries: 2 }) })
    agenda.on('retry:a', (_, { attempt, delay }) => told.push([attempt, delay]))
    const exhausted = new Promise((done) => agenda.on('retry exhausted:a', () => done()))
    await agenda.now('a')
    const end = ended(agenda, 'a', 3)
    await agenda.start()
    await exhausted
    await end
    const found = await job(agenda, 'a')
    return { told, failCount: found.failCount, nextRunAt: found.nextRunAt }
  },
  'retry: success sets the count of failures back': async () => {
    const agenda = await application()
    let attempts = 0
    agenda.define('a', async () => { if ((attempts += 1) === 1) throw new Error('down') }, { backoff: backoffStrategies.constant({ delay: 5, maxRetries: 2 }) })
    await agenda.now('a')
    const end = ended(agenda, 'a', 2)
    await agenda.start()
    await end
    return { attempts, ...left(await job(agenda, 'a')) }
  },
  'retry: without a backoff a failed job is not tried again': async () => {
    const agenda = await application()
    agenda.define('a', async () => { throw new Error('down') })
    await agenda.now('a')
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    return { nextRunAt: (await job(agenda, 'a')).nextRunAt, state: (await job(agenda, 'a')).state }
  },
  'backoff: delays in milliseconds': async () => {
    const delays = (strategy) => [1, 2, 3, 4].map((attempt) => strategy({ attempt, error: new Error('x'), jobName: 'a' }))
    return {
      constant: delays(backoffStrategies.constant({ delay: 10, maxRetries: 3 })),
      linear: delays(backoffStrategies.linear({ delay: 10, maxRetries: 3 })),
      exponential: delays(backoffStrategies.exponential({ delay: 10, factor: 3, maxRetries: 3 })),
    }
  },
  // ---------------------------------------------------------------------------------------------------------- logger
  'logger: the events of a run': async () => {
    const agenda = await application({ logging: true })
    agenda.define('a', async () => {})
    const created = await agenda.now('a')
    await agenda.start()
    // the library reads the lines and counts them in two queries at a time: what is counted may not be among those that were read
    await until(async () => (await agenda.getLogs()).total >= 4)
    const { entries } = await agenda.getLogs({ sort: 'asc' })
    return { events: entries.map(({ event, level }) => `${level} ${event}`).sort(), ofJob: entries.every(({ jobId, jobName }) => jobId === String(created.attrs._id) && jobName === 'a') }
  },
  'logger: logs are chosen by level, event, name and time, and cleared': async () => {
    const agenda = await application({ logging: true })
    const logger = agenda.backend.logger
    const time = new Date('2026-11-02T08:30:00.123Z')
    for (const [level, event, jobName] of [['info', 'start', 'a'], ['error', 'fail', 'a'], ['info', 'success', 'b']]) await logger.log({ timestamp: time, level, event, jobName, message: 'm' })
    const count = async (query) => (await agenda.getLogs(query)).total
    return [await count(), await count({ level: 'info' }), await count({ event: ['fail', 'success'] }), await count({ jobName: 'a', from: time }), await count({ to: ago(0), jobName: 'c' }), await agenda.clearLogs({ level: 'error' }), await agenda.clearLogs()]
  },
  'logger: a definition may be left out of the log': async () => {
    const agenda = await application({ logging: true })
    agenda.define('silent', async () => {}, { logging: false })
    agenda.define('a', async () => {})
    await agenda.schedule(ago(1000), 'silent')
    const end = ended(agenda, 'silent')
    await agenda.start()
    await end
    await agenda.now('a')
    await until(async () => (await agenda.getLogs({ event: 'complete' })).total > 0)
    return [...new Set((await agenda.getLogs()).entries.map(({ jobName }) => jobName))]
  },
  // ------------------------------------------------------------------------------------------------ remove on complete
  'remove on complete: jobs that succeed and do not repeat': async () => {
    const agenda = await application({ removeOnComplete: true })
    agenda.define('once', async () => {})
    agenda.define('kept', async () => {}, { removeOnComplete: false })
    agenda.define('failed', async () => { throw new Error('x') })
    agenda.define('repeated', async () => {})
    for (const name of ['once', 'kept', 'failed']) await agenda.now(name)
    await agenda.every('1 day', 'repeated')
    const ends = ['kept', 'failed', 'repeated'].map((name) => ended(agenda, name))
    await agenda.start()
    await Promise.all(ends)
    await until(async () => !(await job(agenda, 'once')))
    return names(await jobs(agenda))
  },
  // ------------------------------------------------------------------------------------------------------ notification
  'notification: another application is told of a job at once': async () => {
    const agenda = await application()
    if (!agenda.hasNotificationChannel()) return 'no channel'
    const worker = await application({ processEvery: 3600000 })
    const seen = new Promise((done) => worker.define('a', async () => done('ran')))
    await worker.start()
    await agenda.start()
    await agenda.now('a')
    return seen
  },
  'notification: another application is told of the end of a run': async () => {
    const agenda = await application()
    if (!agenda.hasNotificationChannel()) return 'no channel'
    const worker = await application()
    worker.define('a', async () => {})
    const told = new Promise((done) => agenda.on('success:a', (notification, isRemote) => done([notification.jobName, isRemote])))
    await agenda.start()
    await worker.start()
    await agenda.now('a')
    return told
  },
  'notification: an error of more than 8000 bytes': async () => {
    const agenda = await application()
    agenda.define('a', async () => { throw new Error('x'.repeat(8000)) })
    await agenda.now('a')
    const end = ended(agenda, 'a')
    await agenda.start()
    await end
    if (agenda.hasNotificationChannel()) await until(() => agenda.errors.length)
    return { errors: [...new Set(agenda.errors)], stored: (await job(agenda, 'a')).failReason.length }
  },
  // ------------------------------------------------------------------------------------------------------------ agenda
  'agenda: several names, words, and a job that is removed': async () => {
    const agenda = await application()
    await agenda.every('1 day', ['a', 'b'])
    await agenda.schedule('in 5 minutes', ['c', 'd'], { v: 1 })
    const created = await agenda.create('e').schedule(FAR).save()
    await created.remove()
    const found = await jobs(agenda)
    return { names: names(found), types: found.map(({ type }) => type).sort(), later: found.filter(({ nextRunAt }) => nextRunAt > new Date()).length }
  },
  'agenda: a job is disabled and enabled': async () => {
    const agenda = await application()
    const created = await agenda.schedule(FAR, 'a')
    await created.disable().save()
    const first = (await job(agenda, 'a')).disabled
    await created.enable().save()
    return [first, (await job(agenda, 'a')).disabled, (await jobs(agenda, { includeDisabled: false })).length]
  },
  'agenda: the bounds of a job': async () => {
    const agenda = await application()
    await agenda.every('1 day', 'a', {}, { startDate: FAR, endDate: new Date('2031-07-01'), skipDays: [0, 6] })
    const { startDate, endDate, skipDays, nextRunAt } = await job(agenda, 'a')
    return [startDate, endDate, skipDays, nextRunAt]
  },
  'agenda: its own name of the backend': async () => {
    const agenda = await application()
    await agenda.start()
    const { backend } = await agenda.getRunningStats()
    return backend
  },
}

const only = process.argv[3]
const observed = {}
for (const [name, behaviour] of Object.entries(behaviours)) {
  if (only && !name.includes(only)) continue
  const cleaner = await application()
  await cleaner.cancelAll()
  await cleaner.backend.logger.clearLogs()
  try {
    observed[name] = await behaviour()
  } catch (error) {
    observed[name] = `broken: ${error.stack}`
  }
  for (const agenda of started.splice(0)) {
    if (agenda.jobProcessor) await agenda.drain({ closeConnection: false })
    await agenda.backend.disconnect()
  }
}
process.stdout.write(JSON.stringify(observed), () => process.exit(0))
