// Agenda 6: `@agendajs/postgres-backend` and `@agendajs/mongo-backend`. Called by path: node agenda.mjs < request.json
//
// The request and the lines of the answer are those of `dialogue.py`; `options.packages` is the folder whose
// `node_modules` hold the library. Nothing is loaded from elsewhere, and no code of the application is.
//
// Connecting changes the store: the backend makes tables, indexes and collections that are absent, and makes its trigger
// anew, which locks the table. `entries` and `fires` therefore connect the repository alone, without its schema: in
// PostgreSQL in read-only transactions, in MongoDB without making an index. `work` starts the library as an application
// does, in `options.workers` processes (2 if omitted). `options.logs`: `entries` prints the lines of the log too.
// `options.json`: `data` is printed as `JSON.stringify` writes it, which is how the backend for PostgreSQL stores it.
//
// The clock of `work` runs on from `now`: what becomes due meanwhile is executed too. A job that the library executes for
// ever, because the next run that it computes has passed, is told as failed (EndlessError).

import { fork } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const MISSING = 3, REFUSED = 2, FAILED = 1
const WRITES = new Set(['prepare', 'work'])
const BACKENDS = { postgresql: '@agendajs/postgres-backend', mongodb: '@agendajs/mongo-backend' }
const SECONDS = 600 // after which the process ends itself, if `seconds` is omitted
const ENDLESS = 3 // executions by one worker for times that have passed, after which a job is executed for ever
const PROCESS_EVERY = 200 // milliseconds between two searches for due jobs, if `options.processEvery` is omitted

class Refused extends Error {}
class Missing extends Error {}

const counts = {}
const put = (kind, members) => {
  counts[kind] = (counts[kind] ?? 0) + 1
  process.stdout.write(JSON.stringify({ kind, ...members }) + '\n')
}
const fail = (id, error) => put('failed', { id, error: error?.name ?? 'Error' }) // the words of an error may quote what is stored

// ---------------------------------------------------------------------------------------------------------- the clock

const RealDate = Date
const clock = { fixed: null, offset: 0 }

/** Put a clock in the place of Date, which shows a time that is fixed, or is ahead of the real one by an offset. */
function replaceClock() {
  const now = () => clock.fixed ?? RealDate.now() + clock.offset
  globalThis.Date = class Date extends RealDate {
    constructor(...parts) {
      if (parts.length === 0) super(now())
      else super(...parts)
    }
    static now() {
      return now()
    }
  }
}

function instant(text) {
  if (!/(Z|[+-]\d\d:?\d\d)$/.test(text)) throw new Refused(`a time without offset: ${text}`)
  return new RealDate(text)
}

// -------------------------------------------------------------------------------------------------------- the library

/** Return the modules of the library, found from the folder of the request alone. */
async function load(request) {
  const folder = request.options?.packages
  if (!folder) throw new Refused('options.packages is omitted: the folder with node_modules')
  const here = createRequire(path.join(folder, 'package.json'))
  const resolve = (name) => {
    try {
      return here.resolve(name)
    } catch {
      throw new Missing(name)
    }
  }
  const names = ['agenda', BACKENDS[request.store.kind]]
  if (!names[1]) throw new Refused(`the library has no store in ${request.store.kind}`)
  const [agenda, backend] = await Promise.all(names.map((name) => import(pathToFileURL(resolve(name)))))
  const versions = Object.fromEntries(names.map((name) => [name, versionOf(resolve(name))]))
  const driver = resolve(request.store.kind === 'mongodb' ? 'mongodb' : 'pg')
  const parse = request.store.kind === 'mongodb' ? null : createRequire(driver)('pg-connection-string').parse
  return { ...agenda, ...backend, driver: here(driver), parse, versions }
}

function versionOf(file) {
  for (let folder = path.dirname(file); folder !== path.dirname(folder); folder = path.dirname(folder)) {
    const description = path.join(folder, 'package.json')
    if (existsSync(description)) return JSON.parse(readFileSync(description, 'utf8')).version
  }
  return null
}

/** Return what `pg` connects with: it reads URIs alone, and the library has no option for a schema. */
function poolConfig(parse, store, readOnly) {
  let config
  if (/^postgres(ql)?:\/\//.test(store.dsn)) config = parse(store.dsn)
  else {
    const given = new URLSearchParams()
    for (const [, name, quoted, plain] of store.dsn.matchAll(/(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|((?:[^\s\\]|\\.)*))/g))
      given.set(name, (quoted ?? plain).replace(/\\(.)/g, '$1'))
    config = { ...parse(`postgresql:///?${given}`), database: given.get('dbname') }
  }
  const options = config.options ? [config.options] : []
  if (readOnly) options.push('-c default_transaction_read_only=on')
  if (store.schema) options.push('-c search_path=' + `"${store.schema.replaceAll('"', '""')}"`.replace(/[\\ ]/g, '\\$&'))
  return { ...config, options: options.join(' ') || undefined }
}

/** Open the store of a request; return its backend, and what closes the connections. */
async function open(library, store, { readOnly = false, makes = false } = {}) {
  if (store.kind === 'mongodb') {
    const client = await library.driver.MongoClient.connect(store.uri)
    const names = store.collections ?? {}
    const backend = new library.MongoBackend({
      mongo: client.db(store.database),
      collection: names.agendaJobs ?? 'agendaJobs',
      logCollection: names.agenda_logs ?? 'agenda_logs',
      ensureIndex: makes,
    })
    return { backend, close: () => client.close() }
  }
  const pool = new library.driver.Pool(poolConfig(library.parse, store, readOnly))
  pool.on('error', () => {}) // of an idle connection: the next statement has it
  const names = store.tables ?? {}
  const backend = new library.PostgresBackend({
    pool,
    tableName: names.agenda_jobs ?? 'agenda_jobs',
    logTableName: names.agenda_logs ?? 'agenda_logs',
    ensureSchema: makes,
  })
  return { backend, close: () => pool.end() }
}

// ------------------------------------------------------------------------------------------------- what the library says

const iso = (time) => (time instanceof RealDate && !Number.isNaN(time.getTime()) ? time.toISOString() : null)

/** Return a value of a job as JSON that is the same for equal values: a type that JSON does not have keeps its name. */
function plain(value) {
  if (value === null || value === undefined) return null
  if (typeof value === 'number' && (!Number.isFinite(value) || Object.is(value, -0))) return { $number: Object.is(value, -0) ? '-0' : String(value) }
  if (typeof value === 'bigint') return { $bigint: String(value) }
  if (typeof value !== 'object') return value
  if (value instanceof RealDate) return { $date: iso(value) ?? String(value.getTime()) }
  if (Array.isArray(value)) return value.map(plain)
  if (value._bsontype === 'Binary') return { $Binary: value.toString('base64'), subtype: value.sub_type }
  if (value._bsontype) return { [`$${value._bsontype}`]: typeof value.toHexString === 'function' ? value.toHexString() : String(value) }
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString('base64') }
  if (value instanceof RegExp) return { $regex: String(value) }
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, plain(value[name])]))
}

/** Return `data` as what PostgreSQL's backend stores is read again. */
const asJson = (value) => (value === undefined ? undefined : JSON.parse(JSON.stringify(value) ?? 'null'))

/** Return the fields of a job or of a log line; those that the library leaves out are absent. */
function fieldsOf(entry) {
  const stated = Object.entries(entry).filter(([name, value]) => value !== undefined && name !== '_id' && name !== 'state')
  return Object.fromEntries(stated.sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, value]) => [name, value instanceof RealDate ? iso(value) : plain(value)]))
}

/** Return every job as the library lists it. A document that breaks the library's list is told, and the others listed. */
async function jobsOf(repository) {
  try {
    return (await repository.queryJobs({})).jobs
  } catch (error) {
    if (!repository.collection) throw error
    const jobs = []
    for await (const { _id } of repository.collection.find({}, { projection: { _id: 1 } })) {
      try {
        if (typeof _id?.toHexString !== 'function') throw error
        jobs.push(...(await repository.queryJobs({ id: _id.toHexString() })).jobs)
      } catch (reason) {
        fail(String(_id), reason)
      }
    }
    return jobs
  }
}

async function withRepository(library, request, action) {
  const { backend, close } = await open(library, request.store, { readOnly: true })
  try {
    await backend.repository.connect()
    await action(backend)
  } finally {
    await close()
  }
}

async function entries(library, request) {
  await withRepository(library, request, async (backend) => {
    const jobs = await jobsOf(backend.repository)
    for (const job of jobs.sort((a, b) => (a._id < b._id ? -1 : 1))) {
      const listed = request.options?.json ? { ...job, data: asJson(job.data) } : job
      put('entry', { id: job._id, due: iso(job.nextRunAt), fields: fieldsOf(listed) })
    }
    if (!request.options?.logs) return
    const { logger, repository } = backend
    if (repository.pool) logger.pool = repository.pool // its setPool, and its setDb, would make the table or the indexes
    else {
      logger.collection = repository.getDb().collection(logger.collectionName)
      logger.initialized = true
    }
    const found = await logger.getLogs({ sort: 'asc', limit: 1e9 })
    for (const entry of found.entries.sort((a, b) => (a._id < b._id ? -1 : 1))) put('log', { id: entry._id, fields: fieldsOf(entry) })
  })
}

async function fires(library, request) {
  const windows = request.windows.map((window) => window.map(instant))
  const agenda = { definitions: {}, attrs: {} }
  await withRepository(library, request, async ({ repository }) => {
    for (const attributes of await jobsOf(repository)) {
      for (const [index, window] of windows.entries()) {
        try {
          const { found, error } = firesIn(library, agenda, attributes, window, request.limit)
          put('fires', { id: attributes._id, window: request.windows[index], fires: found })
          if (error) throw error
        } catch (error) {
          fail(attributes._id, error)
          break
        }
      }
    }
  })
}

/** Return the fires of a job in a window, and the error that ended them: that of the library, or a fire before the last one. */
function firesIn(library, agenda, attributes, [begin, end], limit) {
  const found = []
  const job = new library.Job(agenda, { ...attributes, failReason: undefined })
  if (!attributes.repeatInterval && !attributes.repeatAt) {
    const time = attributes.nextRunAt
    return { found: time && time >= begin && time <= end ? [iso(time)] : [] }
  }
  let last = new RealDate(begin)
  try {
    while (found.length < limit) {
      clock.fixed = last.getTime() // repeatAt is read by the clock
      job.attrs.lastRunAt = new Date(last)
      job.computeNextRunAt()
      if (job.attrs.failReason) return { found, error: new Error(job.attrs.failReason) }
      const next = job.attrs.nextRunAt
      if (!next || next > end) break
      if (next <= last) return { found, error: new Error(`the fire after ${iso(last)} is ${iso(next)}`) }
      found.push(iso(next))
      last = next
    }
  } finally {
    clock.fixed = null
  }
  return { found }
}

// --------------------------------------------------------------------------------------------------- what the library does

async function prepare(library, request) {
  const { backend, close } = await open(library, request.store, { makes: true })
  try {
    await backend.connect()
    const names = request.store.tables ?? {}
    put('prepared', { tables: ['agenda_jobs', 'agenda_logs'].map((name) => names[name] ?? name) })
  } finally {
    await close()
  }
}

/** Let processes of the library execute what is due, until each of them finds nothing that was due at the beginning. */
async function work(_library, request) {
  const number = request.options?.workers ?? 2
  const begin = request.now ? instant(request.now) : new RealDate()
  const offset = begin.getTime() - RealDate.now()
  const children = Array.from({ length: number }, (_, index) => ({ name: `worker-${index + 1}`, ready: false, quiet: false, ended: false }))
  let pause = null
  const answer = new Promise((resolve, reject) => {
    const tell = (message) => children.forEach((child) => child.process.send(message))
    for (const child of children) {
      child.process = fork(fileURLToPath(import.meta.url), ['worker'], { stdio: ['ignore', 2, 2, 'ipc'] })
      child.process.on('error', reject)
      child.process.on('exit', (code) => {
        child.ended = true
        if (code !== 0) reject(new Error(`${child.name} ended with ${code}`))
        else if (children.every((other) => other.ended)) resolve()
      })
      child.process.on('message', (message) => {
        if (message.execution) put('execution', { ...message.execution, worker: child.name })
        else if (message.endless) put('failed', { id: message.endless, error: 'EndlessError' })
        else if (message.error) reject(new Error(`${child.name}: ${message.error}`))
        else if (message.ready) {
          child.ready = true
          if (children.every((other) => other.ready)) tell({ start: true })
        } else if ('quiet' in message) {
          child.quiet = message.quiet
          clearTimeout(pause)
          // a job that is due again may be claimed before that is told
          if (children.every((other) => other.quiet)) pause = setTimeout(() => tell({ stop: true }), 2 * PROCESS_EVERY)
        }
      })
      child.process.send({ request, offset, begin: begin.getTime(), name: child.name })
    }
  })
  try {
    await answer
  } finally {
    clearTimeout(pause)
    for (const child of children) if (!child.ended) child.process.kill('SIGKILL')
  }
}

/** A process of `work`: an application whose handlers do nothing but tell that they were called. */
function worker() {
  let agenda, quiet
  const tell = (message) => process.send(message)
  let broken = (error) => tell({ error: String(error?.stack ?? error).slice(0, 2000) })
  process.on('disconnect', () => process.exit(1))
  process.on('unhandledRejection', (error) => broken(error))

  const prepareToStart = async ({ request, offset, begin, name }) => {
    clock.offset = offset
    replaceClock()
    const library = await load(request)
    const makes = name === 'worker-1' // two that make the trigger anew at the same moment may fail
    const { backend } = await open(library, request.store, { makes })
    const options = request.options ?? {}
    agenda = new library.Agenda({
      backend,
      name,
      processEvery: options.processEvery ?? PROCESS_EVERY,
      ...(options.lockLimit ? { defaultLockLimit: options.lockLimit } : {}),
      ...(options.lockLifetime ? { defaultLockLifetime: options.lockLifetime } : {}),
    })
    agenda.on('error', (error) => broken(error))
    await agenda.ready
    const repository = agenda.db
    const names = await repository.getDistinctJobNames()
    const slots = new Map(), unfinished = new Set(), empty = new Set(), executed = new Map()
    const isEndless = (id) => (executed.get(id) ?? 0) >= ENDLESS
    const isPast = (time) => !time || time.getTime() <= begin
    const claim = repository.getNextJobToRun.bind(repository)
    repository.getNextJobToRun = async (jobName, ...others) => {
      const job = await claim(jobName, ...others)
      if (job) {
        slots.set(job._id, job.nextRunAt)
        job.fork = false // its handler would be a file of the application
      }
      if (!job || isEndless(job._id) || !isPast(job.nextRunAt)) empty.add(jobName)
      else {
        empty.delete(jobName)
        unfinished.add(job._id)
      }
      quiet(names.length === empty.size && unfinished.size === 0)
      return job
    }
    for (const jobName of names) {
      agenda.define(jobName, async (job) => {
        const { _id: id, name: handler } = job.attrs
        if (isEndless(id)) return
        if (isPast(slots.get(id))) executed.set(id, (executed.get(id) ?? 0) + 1)
        tell(isEndless(id) ? { endless: id } : { execution: { id, at: iso(slots.get(id)), handler } })
      })
    }
    agenda.on('complete', (job, isRemote) => {
      if (isRemote === true) return // of the other worker
      const { _id: id, name: jobName, nextRunAt } = job.attrs
      unfinished.delete(id)
      if (nextRunAt && isPast(nextRunAt) && !isEndless(id)) empty.delete(jobName) // it is due again
      quiet(names.length === empty.size && unfinished.size === 0)
    })
    agenda.jobNames = names
    tell({ ready: true })
  }
  let told = null
  quiet = (now) => {
    if (now !== told) tell({ quiet: now })
    told = now
  }
  const actions = {
    request: prepareToStart,
    start: async () => {
      await agenda.start()
      if (agenda.jobNames.length === 0) quiet(true)
    },
    stop: async () => {
      quiet = broken = () => {} // a search for due jobs that is under way fails when the connections are closed
      await agenda.drain()
      process.send({ ended: true }, () => process.exit(0))
    },
  }
  process.on('message', (message) => {
    const name = Object.keys(actions).find((key) => message[key])
    actions[name](message).catch((error) => {
      broken(error)
      setImmediate(() => process.exit(1))
    })
  })
}

async function main() {
  const request = JSON.parse(readFileSync(0, 'utf8'))
  setTimeout(() => process.exit(FAILED), (request.seconds ?? SECONDS) * 1000).unref() // its workers end with it
  const actions = { prepare, entries, fires, work }
  if (WRITES.has(request.do) && request.scratch !== true) throw new Refused(`${request.do} writes, and the request does not say that the tables are scratch`)
  if (!actions[request.do]) throw new Refused(`the probe has no ${request.do}`)
  if (request.do === 'fires') replaceClock()
  const library = await load(request)
  await actions[request.do](library, request)
  const told = Object.fromEntries(Object.entries(counts).sort(([a], [b]) => (a < b ? -1 : 1)))
  put('done', { versions: library.versions, node: process.versions.node, counts: told })
}

if (process.argv[2] === 'worker') worker()
else {
  main().then(
    () => process.stdout.write('', () => process.exit(0)),
    (error) => {
      const [code, kind, members] =
        error instanceof Missing ? [MISSING, 'missing', { module: error.message }]
        : error instanceof Refused ? [REFUSED, 'no', { words: error.message }]
        : [FAILED, 'broken', { error: error.name ?? 'Error', words: String(error.message ?? error).slice(0, 1000) }]
      if (code === FAILED) console.error(error)
      put(kind, members)
      process.stdout.write('', () => process.exit(code))
    },
  )
}
