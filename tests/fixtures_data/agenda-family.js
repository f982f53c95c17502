// Writes jobs with one library of Agenda's family: node jobs.js PACKAGE URI COLLECTION
const [, , name, uri, collection] = process.argv;
const library = require(name);
const Library = library.Agenda || library.Pulse || library.default || library;
const isPulse = name.includes('pulse'), isHokify = name.includes('hokify');
const sleep = ms => new Promise(done => setTimeout(done, ms));
const attempt = async (what, action) => {
  try { return await action(); } catch (error) { console.log(`${what}: ${error.message}`); }
};

(async () => {
  const agenda = new Library({
    db: { address: uri, collection }, processEvery: '200 milliseconds', name: 'worker-1',
    ...(isPulse ? { resumeOnRestart: false } : {}),
  });
  agenda.on('error', error => console.log(`error: ${error.message}`));
  const define = (job, action, options = {}) =>
    isPulse || isHokify ? agenda.define(job, action, options) : agenda.define(job, options, action);
  define('ok', async () => {});
  define('mail', async () => {});
  define('boom', async () => { throw new Error('boom: no such table'); });
  define('slow', () => new Promise(() => {}));
  define('with-result', async () => ({ rows: 3, at: 'end' }), { shouldSaveResult: true });
  define('progress', async job => { await job.touch(40); });
  define('retry', async () => { throw new Error('still down'); }, { attempts: 2, backoff: { type: 'fixed', delay: 100 } });
  define('high', async () => {}, { priority: 'high' });
  const ready = agenda.ready || agenda._ready;
  await agenda.start();
  await ready;
  await attempt('every', () => agenda.every('5 minutes', 'ok', { kind: 'every-string' }));
  await attempt('now', () => agenda.now('mail', { userId: 7, note: 'ran once' }));
  await attempt('now without data', () => agenda.now('mail'));
  await attempt('with-result', () => agenda.now('with-result', {}));
  await attempt('boom', () => agenda.now('boom', { try: 1 }));
  await attempt('slow', () => agenda.now('slow', { stays: 'locked' }));
  await attempt('progress', () => agenda.now('progress', {}));
  if (isPulse) {
    define('waits', async () => { throw new Error('down'); }, { attempts: 5, backoff: { type: 'exponential', delay: 60000 } });
    await attempt('retried', () => agenda.now('retry', { to: 'a' }));
    await attempt('waits to be retried', () => agenda.now('waits', {}));
  }
  await attempt('every cron', () => agenda.every('30 2 * * 1-5', 'high', { kind: 'every-cron' }, { timezone: 'Europe/Vienna' }));
  await attempt('every, first put off', () => agenda.every('2 hours', 'mail', { kind: 'put-off' }, { skipImmediate: true }));
  await sleep(2500);
  await attempt('every of several', () => agenda.every('1 day', ['boom', 'progress'], {}, { skipImmediate: true }));
  // Nobody defines these names, so no instance takes them.
  await attempt('schedule in words', () => agenda.schedule('in 3 days', 'later', { kind: 'schedule-string' }));
  await attempt('schedule at a date', () => agenda.schedule(new Date('2031-06-01T07:00:00.123Z'), 'later', { kind: 'schedule-date' }));
  await attempt('schedule of several', () => agenda.schedule('tomorrow at noon', ['later', 'later-too'], { n: 1 }));
  await attempt('unique', () => agenda.create('unique-one', { customer: 'c1' }).unique({ 'data.customer': 'c1' }).schedule('in 1 hour').save());
  await attempt('insert only', () => agenda.create('unique-insert-only', { customer: 'c2' }).unique({ 'data.customer': 'c2' }, { insertOnly: true }).schedule('in 1 hour').save());
  await attempt('interval in milliseconds', () => agenda.create('numeric-interval', { ms: true }).repeatEvery(90000).save());
  await attempt('repeatAt', () => agenda.create('repeat-at', {}).repeatAt('3:30pm').save());
  await attempt('windowed', () => agenda.create('windowed', {}).repeatEvery('1 day', {
    timezone: 'America/New_York', skipImmediate: true, startDate: new Date('2030-01-01'), endDate: new Date('2030-12-31'), skipDays: '2 days' }).save());
  await attempt('disabled', () => agenda.create('paused', { why: 'disabled by admin' }).disable().schedule(new Date('2031-01-01')).save());
  await attempt('not a cron', () => agenda.create('bad-cron', {}).repeatEvery('not a cron').save());
  await attempt('no time', () => agenda.create('no-time', {}).save());
  await attempt('null data', () => agenda.create('no-data', null).schedule('in 1 hour').save());
  await attempt('text', () => agenda.create('scalar-data', 'just a string').schedule('in 1 hour').save());
  await attempt('list', () => agenda.create('array-data', [1, 'two', { three: 3 }]).schedule('in 1 hour').save());
  await attempt('odd', () => agenda.create('odd-data', {
    nul: 'a\0b', nan: NaN, inf: -Infinity, big: 2 ** 53, float: 1.5, date: new Date(0), undef: undefined, 'a.b': { $c: 1 },
  }).schedule('in 1 hour').save());
  await attempt('priority', () => agenda.create('numbered', {}).priority(7).schedule('in 1 hour').save());
  await attempt('lowest', () => agenda.create('numbered', {}).priority('lowest').schedule('in 1 hour').save());
  await attempt('failed by hand', () => agenda.create('by-hand', {}).fail('refused').schedule('in 1 hour').save());
  if (isHokify) await attempt('fork', () => agenda.create('forked', {}).forkMode(true).schedule('in 1 hour').save());
  if (isPulse) await attempt('save result', () => agenda.create('saved', {}).setShouldSaveResult(true).schedule('in 1 hour').save());
  await sleep(1500);
  process.exit(0); // as a process that is killed: what runs stays locked
})();
