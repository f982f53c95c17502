// Quartz's JDBC job store. Called by path: java -cp JARS Quartz.java < request.json
//
// The request and the lines of the answer are those of `dialogue.py`. `options.scheduler_name`: the scheduler;
// `options.job_classes`: each class with its annotations; `options.use_properties`. No class of an application is loaded:
// each job gets one that does nothing and has the annotations that were said, and objects of classes that are neither
// Java's own nor Quartz's are not read (`jdk.serialFilter`). `entries` and `fires` open read-only sessions. The clock is
// the real one: `work` moves the due times that have come at `now` to the present, and those that come soon to tomorrow,
// and lets two schedulers of a cluster execute what is due.

import java.io.*;
import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.*;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.*;
import java.util.Date;
import org.quartz.*;
import org.quartz.impl.*;
import org.quartz.impl.matchers.GroupMatcher;
import org.quartz.spi.ClassLoadHelper;

public class Quartz {
    static class Refused extends RuntimeException { Refused(String words) { super(words); } }

    static final PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    static final Map<String, Integer> counts = new TreeMap<>();
    static final long HOUR = 3_600_000L;
    static Map<String, List<Object>> annotations = new HashMap<>();
    static long begin;

    static synchronized void put(String kind, Object... members) {
        var line = new LinkedHashMap<String, Object>();
        line.put("kind", kind);
        for (int i = 0; i < members.length; i += 2) line.put((String) members[i], members[i + 1]);
        counts.merge(kind, 1, Integer::sum);
        out.println(json(line));
    }

    static void fail(String id, Throwable error) {
        while (error.getCause() != null) error = error.getCause();
        put("failed", "id", id, "error", error.getClass().getSimpleName()); // its words may quote what is stored
    }

    // ------------------------------------------------------------------------------------------------------ stand-ins

    public static class Plain implements Job {
        public void execute(JobExecutionContext context) {
            try {
                put("execution", "id", "trigger:" + context.getTrigger().getKey(), "at", iso(context.getScheduledFireTime()),
                    "handler", context.getJobDetail().getKey().toString(), "worker", context.getScheduler().getSchedulerInstanceId());
            } catch (SchedulerException error) { throw new RuntimeException(error); }
        }
    }
    @DisallowConcurrentExecution public static class Alone extends Plain {}
    @PersistJobDataAfterExecution public static class Keeping extends Plain {}
    @DisallowConcurrentExecution @PersistJobDataAfterExecution public static class AloneKeeping extends Plain {}

    public static class StandIns implements ClassLoadHelper {
        public void initialize() {}
        public ClassLoader getClassLoader() { return Quartz.class.getClassLoader(); }
        public java.net.URL getResource(String name) { return getClassLoader().getResource(name); }
        public InputStream getResourceAsStream(String name) { return getClassLoader().getResourceAsStream(name); }
        @SuppressWarnings("unchecked") public <T> Class<? extends T> loadClass(String name, Class<T> kind) throws ClassNotFoundException {
            return (Class<? extends T>) (kind == Job.class ? standIn(name) : loadClass(name));
        }
        public Class<?> loadClass(String name) throws ClassNotFoundException {
            if (name.startsWith("org.quartz.") || name.startsWith("org.postgresql.") || name.startsWith("Quartz$")) return getClassLoader().loadClass(name);
            return standIn(name);
        }
        Class<?> standIn(String name) throws ClassNotFoundException {
            var said = annotations.get(name);
            if (said == null) throw new ClassNotFoundException(name);
            boolean alone = said.contains("DisallowConcurrentExecution"), keeping = said.contains("PersistJobDataAfterExecution");
            return alone ? (keeping ? AloneKeeping.class : Alone.class) : keeping ? Keeping.class : Plain.class;
        }
    }

    // ------------------------------------------------------------------------------------------------------ the store

    static String url(Map<String, Object> store, boolean readOnly) {
        var uri = URI.create((String) store.get("dsn"));
        if (!Set.of("postgresql", "postgres").contains(String.valueOf(uri.getScheme())) || uri.getHost() == null)
            throw new Refused("the driver of Java reads an address of the form postgresql://user:password@host:port/database");
        var given = new ArrayList<String>();
        if (uri.getRawUserInfo() != null) {
            var parts = uri.getRawUserInfo().split(":", 2);
            given.add("user=" + parts[0]);
            if (parts.length > 1) given.add("password=" + parts[1]);
        }
        for (var pair : uri.getRawQuery() == null ? new String[0] : uri.getRawQuery().split("&"))
            if (pair.startsWith("sslmode=") || pair.startsWith("sslrootcert=")) given.add(pair);
        if (readOnly) given.add("options=" + URLEncoder.encode("-c default_transaction_read_only=on", StandardCharsets.UTF_8).replace("+", "%20"));
        return "jdbc:postgresql://" + uri.getHost() + ":" + (uri.getPort() < 0 ? 5432 : uri.getPort()) + uri.getRawPath() + "?" + String.join("&", given);
    }

    static String prefix(Map<String, Object> store) {
        var schema = (String) store.get("schema");
        var tables = store.get("tables");
        if (tables instanceof Map<?, ?> names && !names.isEmpty()) throw new Refused("the library knows tables by one prefix, and not by names of their own");
        return schema == null || schema.isEmpty() ? "qrtz_" : schema + ".qrtz_";
    }

    static Scheduler open(Map<String, Object> request, int worker) throws Exception {
        var store = map(request.get("store"));
        var options = map(request.get("options"));
        if (!"postgresql".equals(store.get("kind"))) throw new Refused("the library has no store in " + store.get("kind"));
        for (var entry : map(options.get("job_classes")).entrySet()) annotations.put(entry.getKey(), list(entry.getValue()));
        var name = (String) options.get("scheduler_name");
        if (name == null) throw new Refused("options.scheduler_name is not said");
        DriverManager.getConnection(url(store, true)).close(); // the pool would try for half a minute
        var properties = new Properties();
        properties.putAll(Map.of(
            "org.quartz.scheduler.instanceName", name, "org.quartz.scheduler.instanceId", "worker-" + worker,
            "org.quartz.scheduler.skipUpdateCheck", "true", "org.quartz.scheduler.classLoadHelper.class", StandIns.class.getName(),
            "org.quartz.threadPool.threadCount", "2", "org.quartz.threadPool.class", "org.quartz.simpl.SimpleThreadPool"));
        properties.putAll(Map.of(
            "org.quartz.jobStore.class", "org.quartz.impl.jdbcjobstore.JobStoreTX",
            "org.quartz.jobStore.driverDelegateClass", "org.quartz.impl.jdbcjobstore.PostgreSQLDelegate",
            "org.quartz.jobStore.useProperties", String.valueOf(Boolean.TRUE.equals(options.get("use_properties"))),
            "org.quartz.jobStore.tablePrefix", prefix(store), "org.quartz.jobStore.dataSource", "d" + worker,
            "org.quartz.jobStore.isClustered", String.valueOf(worker > 0), "org.quartz.jobStore.misfireThreshold", String.valueOf(HOUR)));
        properties.putAll(Map.of(
            "org.quartz.dataSource.d" + worker + ".driver", "org.postgresql.Driver", "org.quartz.dataSource.d" + worker + ".URL", url(store, worker == 0),
            // without it two schedulers of Quartz 2.3.2 were seen to execute one trigger twice
            "org.quartz.jobStore.acquireTriggersWithinLock", "true",
            "org.quartz.dataSource.d" + worker + ".maxConnections", "4", "org.quartz.scheduler.idleWaitTime", "1000"));
        SchedulerRepository.getInstance().remove(name); // so that one process may have two of a cluster
        return new StdSchedulerFactory(properties).getScheduler();
    }

    // ------------------------------------------------------------------------------------------ what the library says

    static String iso(Date time) { return time == null ? null : time.toInstant().toString(); }

    static Map<String, Object> data(JobDataMap held) {
        var shown = new TreeMap<String, Object>();
        held.getWrappedMap().forEach((key, value) -> shown.put(key, value == null || value instanceof String || value instanceof Number || value instanceof Boolean ? value : value.getClass().getName()));
        return shown;
    }

    static List<Trigger> triggers(Scheduler scheduler, boolean tell) throws SchedulerException {
        var found = new ArrayList<Trigger>();
        for (var key : new TreeSet<>(scheduler.getTriggerKeys(GroupMatcher.anyGroup())))
            try { found.add(scheduler.getTrigger(key)); } catch (Exception error) { if (tell) fail("trigger:" + key, error); }
        return found;
    }

    static void entries(Map<String, Object> request) throws Exception {
        var scheduler = open(request, 0);
        for (var key : new TreeSet<>(scheduler.getJobKeys(GroupMatcher.anyGroup())))
            try {
                var job = scheduler.getJobDetail(key);
                put("entry", "id", "job:" + key, "due", null, "fields", new TreeMap<>(Map.of("durable", job.isDurable(), "recovery", job.requestsRecovery(),
                    "description", String.valueOf(job.getDescription()), "data", data(job.getJobDataMap()))));
            } catch (Exception error) { fail("job:" + key, error); }
        for (var trigger : triggers(scheduler, true)) {
            var fields = new TreeMap<String, Object>(Map.of("job", trigger.getJobKey().toString(), "state", scheduler.getTriggerState(trigger.getKey()).name(),
                "class", trigger.getClass().getSimpleName(), "priority", trigger.getPriority(), "misfire", trigger.getMisfireInstruction(), "data", data(trigger.getJobDataMap())));
            fields.put("description", trigger.getDescription());
            fields.put("start", iso(trigger.getStartTime()));
            fields.put("end", iso(trigger.getEndTime()));
            fields.put("previous", iso(trigger.getPreviousFireTime()));
            fields.put("calendar", trigger.getCalendarName());
            if (trigger instanceof CronTrigger cron) fields.putAll(Map.of("line", cron.getCronExpression(), "zone", cron.getTimeZone().getID()));
            if (trigger instanceof SimpleTrigger simple) fields.putAll(Map.of("count", simple.getRepeatCount(), "interval", simple.getRepeatInterval(), "times", simple.getTimesTriggered()));
            if (trigger instanceof CalendarIntervalTrigger interval) fields.putAll(Map.of("interval", interval.getRepeatInterval(), "unit", interval.getRepeatIntervalUnit().name(), "times", interval.getTimesTriggered()));
            if (trigger instanceof DailyTimeIntervalTrigger daily) fields.putAll(Map.of("interval", daily.getRepeatInterval(), "unit", daily.getRepeatIntervalUnit().name(), "days", new TreeSet<>(daily.getDaysOfWeek()).toString(),
                "from", clock(daily.getStartTimeOfDay()), "to", clock(daily.getEndTimeOfDay())));
            put("entry", "id", "trigger:" + trigger.getKey(), "due", iso(trigger.getNextFireTime()), "fields", fields);
        }
        for (var name : new TreeSet<>(scheduler.getCalendarNames()))
            try { put("entry", "id", "calendar:" + name, "due", null, "fields", Map.of("class", scheduler.getCalendar(name).getClass().getSimpleName())); }
            catch (Exception error) { fail("calendar:" + name, error); }
        for (var group : new TreeSet<>(scheduler.getPausedTriggerGroups())) put("entry", "id", "paused:" + group, "due", null, "fields", Map.of());
        scheduler.shutdown();
    }

    static String clock(TimeOfDay time) { return time.getHour() + ":" + time.getMinute() + ":" + time.getSecond(); }

    static void fires(Map<String, Object> request) throws Exception {
        var scheduler = open(request, 0);
        long limit = ((Number) request.get("limit")).longValue();
        for (var trigger : triggers(scheduler, false))
            for (var given : list(request.get("windows")))
                try {
                    long from = instant(list(given).get(0)), to = instant(list(given).get(1));
                    var calendar = trigger.getCalendarName() == null ? null : scheduler.getCalendar(trigger.getCalendarName());
                    var found = new ArrayList<String>();
                    var time = trigger.getFireTimeAfter(new Date(from - 1));
                    while (time != null && time.getTime() < to && found.size() < limit) {
                        if (calendar == null || calendar.isTimeIncluded(time.getTime())) found.add(iso(time));
                        time = trigger.getFireTimeAfter(time);
                    }
                    put("fires", "id", "trigger:" + trigger.getKey(), "window", given, "fires", found);
                } catch (Exception error) { fail("trigger:" + trigger.getKey(), error); break; }
        scheduler.shutdown();
    }

    static long instant(Object text) { return OffsetDateTime.parse((String) text).toInstant().toEpochMilli(); }

    // ------------------------------------------------------------------------------------------ what the library does

    static void work(Map<String, Object> request) throws Exception {
        var store = map(request.get("store"));
        try (var connection = DriverManager.getConnection(url(store, false)); var statement = connection.createStatement()) {
            begin = System.currentTimeMillis();
            long now = request.get("now") == null ? begin : instant(request.get("now"));
            var triggers = prefix(store) + "triggers";
            statement.executeUpdate("UPDATE " + triggers + " SET next_fire_time = " + (begin + 24 * HOUR) + " WHERE next_fire_time BETWEEN " + (now + 1) + " AND " + (begin + HOUR));
            statement.executeUpdate("UPDATE " + triggers + " SET next_fire_time = " + begin + " WHERE next_fire_time BETWEEN 1 AND " + now);
            var workers = List.of(open(request, 1), open(request, 2));
            for (var worker : workers) worker.start();
            boolean busy = true;
            while (busy) {
                Thread.sleep(200);
                try (var rows = statement.executeQuery("SELECT (SELECT count(*) FROM " + triggers + " WHERE trigger_state IN ('WAITING', 'ACQUIRED', 'BLOCKED') AND next_fire_time BETWEEN 1 AND " + begin
                        + ") + (SELECT count(*) FROM " + prefix(store) + "fired_triggers WHERE state <> 'ACQUIRED')")) {
                    rows.next();
                    busy = rows.getLong(1) > 0;
                }
            }
            for (var worker : workers) worker.shutdown(true);
        }
    }

    static void prepare(Map<String, Object> request) throws Exception {
        var store = map(request.get("store"));
        var name = "org/quartz/impl/jdbcjobstore/tables_postgres.sql";
        try (var connection = DriverManager.getConnection(url(store, false)); var statement = connection.createStatement(); var file = Quartz.class.getClassLoader().getResourceAsStream(name)) {
            if (file == null) throw new Refused("the library's jar has no " + name);
            var text = new String(file.readAllBytes(), StandardCharsets.UTF_8);
            var schema = (String) store.get("schema");
            connection.setAutoCommit(false);
            if (schema != null && !schema.isEmpty()) statement.execute("SET LOCAL search_path = \"" + schema.replace("\"", "\"\"") + "\"");
            var made = new ArrayList<String>();
            for (var part : text.replaceAll("(?m)--.*$", "").split(";")) {
                var sql = part.strip();
                // the script begins by dropping the tables; here one that exists makes CREATE TABLE fail, and nothing is changed
                if (sql.isEmpty() || sql.startsWith("DROP TABLE") || sql.equals("COMMIT") || sql.equals("BEGIN")) continue;
                statement.execute(sql);
                if (sql.startsWith("CREATE TABLE")) made.add(sql.split("\\s+|\\(")[2].toLowerCase());
            }
            connection.commit();
            put("prepared", "tables", made);
        }
    }

    // ----------------------------------------------------------------------------------------------------------- JSON

    @SuppressWarnings("unchecked") static Map<String, Object> map(Object value) { return value == null ? new LinkedHashMap<>() : (Map<String, Object>) value; }
    @SuppressWarnings("unchecked") static List<Object> list(Object value) { return value == null ? new ArrayList<>() : (List<Object>) value; }

    static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) return String.valueOf(value);
        if (value instanceof Map<?, ?> held) {
            var parts = new ArrayList<String>();
            held.forEach((key, inner) -> parts.add(json(String.valueOf(key)) + ": " + json(inner)));
            return "{" + String.join(", ", parts) + "}";
        }
        if (value instanceof Collection<?> held) return "[" + String.join(", ", held.stream().map(Quartz::json).toList()) + "]";
        var text = new StringBuilder("\"");
        for (char sign : String.valueOf(value).toCharArray())
            if (sign < ' ' || sign == '"' || sign == '\\' || sign > '~') text.append(String.format("\\u%04x", (int) sign));
            else text.append(sign);
        return text.append('"').toString();
    }

    /** Reads one JSON value. */
    static class Json {
        final String text; int at;
        Json(String text) { this.text = text; }
        char next() { while (Character.isWhitespace(text.charAt(at))) at++; return text.charAt(at); }
        Object value() {
            char sign = next();
            if (sign == '{') {
                var held = new LinkedHashMap<String, Object>();
                at++;
                while (next() != '}') { if (text.charAt(at) == ',') { at++; next(); } var key = string(); next(); at++; held.put(key, value()); }
                at++;
                return held;
            }
            if (sign == '[') {
                var held = new ArrayList<Object>();
                at++;
                while (next() != ']') { if (text.charAt(at) == ',') at++; held.add(value()); }
                at++;
                return held;
            }
            if (sign == '"') return string();
            int from = at;
            while (at < text.length() && ",]} \n\t\r".indexOf(text.charAt(at)) < 0) at++;
            var word = text.substring(from, at);
            return switch (word) { case "null" -> null; case "true" -> true; case "false" -> false; default -> word.matches("-?\\d{1,18}") ? (Object) Long.valueOf(word) : Double.valueOf(word); };
        }
        String string() {
            var held = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char sign = text.charAt(at);
                if (sign != '\\') { held.append(sign); continue; }
                sign = text.charAt(++at);
                switch (sign) {
                    case 'u' -> { held.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16)); at += 4; }
                    case 'n' -> held.append('\n'); case 't' -> held.append('\t'); case 'r' -> held.append('\r');
                    case 'b' -> held.append('\b'); case 'f' -> held.append('\f'); default -> held.append(sign);
                }
            }
            at++;
            return held.toString();
        }
    }

    static void end(int status) { out.flush(); Runtime.getRuntime().halt(status); }

    public static void main(String[] arguments) throws Exception {
        Thread.currentThread().setContextClassLoader(Quartz.class.getClassLoader()); // of a program that Java has compiled itself
        var request = map(new Json(new String(System.in.readAllBytes(), StandardCharsets.UTF_8)).value());
        var alarm = new Thread(() -> { try { Thread.sleep(1000 * ((Number) request.getOrDefault("seconds", 600L)).longValue()); } catch (InterruptedException none) { return; } Runtime.getRuntime().halt(1); });
        alarm.setDaemon(true);
        alarm.start();
        try {
            var what = (String) request.get("do");
            if (Set.of("prepare", "work").contains(what) && !Boolean.TRUE.equals(request.get("scratch")))
                throw new Refused(what + " writes, and the request does not say that the tables are scratch");
            switch (what) {
                case "prepare" -> prepare(request);
                case "entries" -> entries(request);
                case "fires" -> fires(request);
                case "work" -> work(request);
                default -> throw new Refused("the probe has no " + what);
            }
            put("done", "versions", Map.of("quartz", org.quartz.core.QuartzScheduler.getVersionMajor() + "." + org.quartz.core.QuartzScheduler.getVersionMinor() + "." + org.quartz.core.QuartzScheduler.getVersionIteration()),
                "java", System.getProperty("java.version"), "counts", new TreeMap<>(counts));
            end(0);
        } catch (Refused refused) {
            put("no", "words", refused.getMessage());
            end(2);
        } catch (Throwable error) {
            error.printStackTrace();
            put("broken", "error", error.getClass().getSimpleName(), "words", String.valueOf(error.getMessage()));
            end(1);
        }
    }
}
