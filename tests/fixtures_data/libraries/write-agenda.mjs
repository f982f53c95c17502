// Write the same jobs with Agenda 6 into MongoDB and PostgreSQL: node write-agenda.mjs PACKAGES < request.json
// The request has `mongodb` (uri, database) and `postgresql` (uri). Prints for each job that a backend does not save its
// name and the words of the error, as JSON.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const here = createRequire(path.join(process.argv[2], 'package.json'))
const { Agenda } = await import(pathToFileURL(here.resolve('agenda')))
const { MongoBackend } = await import(pathToFileURL(here.resolve('@agendajs/mongo-backend')))
const { PostgresBackend } = await import(pathToFileURL(here.resolve('@agendajs/postgres-backend')))
const { Binary, Decimal128, Long, MongoClient, ObjectId } = here('mongodb')
const request = JSON.parse(readFileSync(0, 'utf8'))

const DUE = new Date('2026-11-02T08:30:00.123Z')
const FAR = new Date('2031-06-01T07:00:00.999Z')
const create = (agenda, name, data) => agenda.create(name, data).schedule(DUE)
const repeat = (agenda, name, interval, options) => {
  const job = create(agenda, name, { rule: interval }).repeatEvery(interval, options)
  job.attrs.type = 'single' // as agenda.every() does
  if (job.attrs.nextRunAt) job.attrs.nextRunAt = DUE // the library takes the time of the call
  return job
}
const DATA = {
  'no data': undefined,
  'null': null,
  'text': 'just a text',
  'number': 1.5,
  'false': false,
  'list': [1, 'two', null, { three: 3 }],
  'nested': { z: 1, aa: { b: { c: [{ d: 'ü' }] } }, 'a.b': 1, $c: 2, '': 3 },
  'undefined inside': { a: undefined, b: [undefined], c: { d: undefined } },
  'date inside': { at: new Date('2027-01-01T00:00:00.005Z'), in: [new Date(0)] },
  'object id inside': { id: new ObjectId('65a0000000000000000000aa') },
  'bytes inside': { buffer: Buffer.from('hi'), binary: new Binary(Buffer.from('hi')) },
  'not a number': { nan: NaN, inf: Infinity, minus: -Infinity, zero: -0 },
  'numbers': { big: 2 ** 53, bigger: 1e300, small: 5e-324, third: 1 / 3, long: Long.fromString('9007199254740993'), decimal: Decimal128.fromString('1.10') },
  'regular expression': { re: /a/i },
  'map': { map: new Map([['a', 1]]) },
  'nul': { text: 'a\0b' },
  'nul in a name': { 'a\u0000': 1 },
  'lone surrogate': { text: '\ud800' },
  'big integer': { n: 10n },
}
const JOBS = {
  'every words': (agenda) => repeat(agenda, 'every words', '5 minutes'),
  'every cron': (agenda) => repeat(agenda, 'every cron', '30 2 * * *', { timezone: 'Europe/Vienna' }),
  'every cron of six fields': (agenda) => repeat(agenda, 'every cron of six fields', '15 30 1 * * 1-5', { timezone: 'America/New_York' }),
  'every number': (agenda) => repeat(agenda, 'every number', 5400000),
  'every text of digits': (agenda) => repeat(agenda, 'every text of digits', '7200000'),
  'every macro': (agenda) => repeat(agenda, 'every macro', '@hourly'),
  'first put off': (agenda) => repeat(agenda, 'first put off', '3 hours', { skipImmediate: true }),
  'window': (agenda) => repeat(agenda, 'window', '1 day').startDate('2027-02-01T00:00:00Z').endDate('2027-11-01T00:00:00Z'),
  'skipped days': (agenda) => repeat(agenda, 'skipped days', '0 6 * * *', { timezone: 'Asia/Kolkata' }).skipDays([0, 6]),
  'no skipped days': (agenda) => repeat(agenda, 'no skipped days', '12 hours').skipDays([]),
  'no rule': (agenda) => repeat(agenda, 'no rule', 'not a cron'),
  'repeat at': (agenda) => create(agenda, 'repeat at', {}).repeatAt('3:30pm'),
  'once later': (agenda) => agenda.create('once later', {}).schedule(FAR),
  'once due': (agenda) => create(agenda, 'once due', {}),
  'disabled': (agenda) => create(agenda, 'disabled', {}).disable(),
  'enabled again': (agenda) => create(agenda, 'enabled again', {}).disable().enable(),
  'fork': (agenda) => create(agenda, 'fork', {}).forkMode(true),
  'priority word': (agenda) => create(agenda, 'priority word', {}).priority('highest'),
  'priority number': (agenda) => create(agenda, 'priority number', {}).priority(-7),
  'priority with a fraction': (agenda) => create(agenda, 'priority with a fraction', {}).priority(1.5),
  'priority beyond 32 bits': (agenda) => create(agenda, 'priority beyond 32 bits', {}).priority(2 ** 31),
  'unique': (agenda) => create(agenda, 'unique', { customer: 'c1' }).unique({ 'data.customer': 'c1' }),
  'insert only': (agenda) => create(agenda, 'insert only', { customer: 'c2' }).unique({ 'data.customer': 'c2' }, { insertOnly: true }),
  'long name': (agenda) => create(agenda, 'n'.repeat(255), {}),
  'name too long': (agenda) => create(agenda, 'm'.repeat(256), {}),
  'zone too long': (agenda) => { const job = create(agenda, 'zone too long', {}); job.attrs.repeatTimezone = 'z'.repeat(101); return job },
  'interval too long': (agenda) => { const job = create(agenda, 'interval too long', {}); job.attrs.repeatInterval = '1 hour' + 'x'.repeat(250); return job },
  'blanks beyond the length': (agenda) => { const job = create(agenda, 'blanks beyond the length', {}); job.attrs.repeatInterval = '1 hour'.padEnd(300); return job },
  ...Object.fromEntries(Object.entries(DATA).map(([name, data]) => [name, (agenda) => create(agenda, name, data)])),
}
const LOGS = [
  { timestamp: DUE, level: 'info', event: 'success', jobId: 'a1', jobName: 'once due', message: 'job succeeded', duration: 12, agendaName: 'maker' },
  { timestamp: FAR, level: 'error', event: 'fail', jobName: 'once due', message: 'job failed: x', error: 'x', failCount: 2 },
  { timestamp: DUE, level: 'info', event: 'retry', jobName: 'a', message: 'm', retryDelay: 100, retryAttempt: 1, meta: { b: 1, at: DUE } },
]

const client = await MongoClient.connect(request.mongodb.uri)
const refused = {}
for (const backend of [
  new MongoBackend({ mongo: client.db(request.mongodb.database) }),
  new PostgresBackend({ connectionString: request.postgresql.uri, disableNotifications: true }),
]) {
  const agenda = new Agenda({ backend, name: 'maker' })
  await agenda.ready
  refused[backend.name] = {}
  for (const [name, make] of Object.entries(JOBS)) {
    try {
      await make(agenda).save()
    } catch (error) {
      refused[backend.name][name] = error.message
    }
  }
  for (const entry of LOGS) await backend.logger.log(entry)
  await backend.disconnect()
}
await client.close()
console.log(JSON.stringify(refused))
