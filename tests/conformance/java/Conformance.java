// Kafka's Java client: `java Conformance.java first|second BOOTSTRAP`; between the two the broker is killed.
// `java Conformance.java shadow BOOTSTRAP` reads shadows of the topics that it writes to.
// Any wrong result is thrown, and ends the program with an error.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Conformance {
  static final int PARTITIONS = 6;
  static final long SETTLED_MS = 60_000;
  static String bootstrap;
  static String shadow = ""; // the suffix of the names of topics that are read

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[1];
    try (Admin admin = Admin.create(settings())) {
      if (arguments[0].equals("shadow")) shadows(admin);
      else if (arguments[0].equals("first")) first(admin);
      else second(admin);
    }
  }

  static void first(Admin admin) throws Exception {
    topics(admin);
    codecs();
    group(admin, "eager", RangeAssignor.class);
    group(admin, "cooperative", CooperativeStickyAssignor.class);
    records(admin);
    transactions();
    modernGroups();
    directories(admin);
    produce("resumed", 0, 50);
    resume("resumed", 0, 50);
    admin.createTopics(List.of(new NewTopic("late", 1, (short) -1))).all().get();
  }

  static void second(Admin admin) throws Exception {
    produce("resumed", 50, 100);
    resume("resumed", 50, 100);
    check(admin.listConsumerGroupOffsets("resumed").partitionsToOffsetAndMetadata().get().size() == 1, "offsets");
    admin.alterConsumerGroupOffsets("resumed", Map.of(new TopicPartition("resumed", 0), new OffsetAndMetadata(90)))
        .all().get();
    resume("resumed", 90, 100);
    admin.deleteConsumerGroups(List.of("resumed")).all().get();
    for (var group : admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get())
      check(!group.groupId().equals("resumed"), "a deleted group is listed");
    say("reset");
  }

  static void shadows(Admin admin) throws Exception {
    shadow = "-shadow";
    for (var source : List.of(new NewTopic("java", PARTITIONS, (short) -1), new NewTopic("codecs", 1, (short) -1),
        new NewTopic("resumed", 1, (short) -1))) {
      admin.createTopics(List.of(source)).all().get();
      cast(admin, source.name(), source.name() + shadow).get();
    }
    var described = admin.describeTopics(List.of("java", "java" + shadow)).allTopicNames().get();
    for (int number = 0; number < PARTITIONS; number++)
      check(described.get("java").partitions().get(number).leader().id()
          != described.get("java" + shadow).partitions().get(number).leader().id(), "distinct brokers");
    var resource = new ConfigResource(ConfigResource.Type.TOPIC, "java" + shadow);
    check(value(admin, resource, "gnomon.shadow.source").equals("java"), "the source is told");
    say("cast");
    codecs();
    group(admin, "eager", RangeAssignor.class);
    group(admin, "cooperative", CooperativeStickyAssignor.class);
    lookUps(admin);
    produce("resumed", 0, 50);
    resume("resumed", 0, 50);
    refused(admin);
  }

  static KafkaFuture<Void> cast(Admin admin, String source, String shadow) {
    var config = Map.of("gnomon.shadow.source", source);
    return admin.createTopics(List.of(new NewTopic(shadow, Optional.empty(), Optional.empty()).configs(config))).all();
  }

  static void lookUps(Admin admin) throws Exception {
    for (int number = 0; number < PARTITIONS; number++) {
      var source = new TopicPartition("java", number);
      var read = new TopicPartition("java" + shadow, number);
      for (var where : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(),
          OffsetSpec.forTimestamp(System.currentTimeMillis() - 2000), OffsetSpec.forTimestamp(0))) {
        var there = admin.listOffsets(Map.of(source, where)).all().get().get(source);
        var here = admin.listOffsets(Map.of(read, where)).all().get().get(read);
        check(there.offset() == here.offset() && there.timestamp() == here.timestamp(), there + " and not " + here);
      }
    }
    say("look-ups");
  }

  static void refused(Admin admin) throws Exception {
    var read = new TopicPartition("java" + shadow, 0);
    try (var producer = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
      told("write to the source", producer.send(new ProducerRecord<>(read.topic(), 0, null, "value")));
    }
    told("", admin.deleteRecords(Map.of(read, RecordsToDelete.beforeOffset(1))).all());
    told("grows with the source", admin.createPartitions(Map.of(read.topic(), NewPartitions.increaseTo(9))).all());
    told("delete java-shadow first", admin.deleteTopics(List.of("java")).all());
    var resource = new ConfigResource(ConfigResource.Type.TOPIC, read.topic());
    for (var name : List.of("retention.ms", "gnomon.shadow.source")) {
      var change = new AlterConfigOp(new ConfigEntry(name, "60000"), AlterConfigOp.OpType.SET);
      expect(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }
    expect(InvalidConfigurationException.class, cast(admin, read.topic(), "shadow-of-a-shadow"));
    admin.deleteTopics(List.of(read.topic())).all().get();
    admin.deleteTopics(List.of("java")).all().get();
    say("refused");
  }

  static void told(String words, Future<?> future) throws Exception {
    try {
      future.get();
    } catch (ExecutionException error) {
      check(error.getCause() instanceof PolicyViolationException, "a policy violation and not " + error.getCause());
      check(error.getCause().getMessage().contains(words), words + " in " + error.getCause().getMessage());
      return;
    }
    check(false, "a policy violation");
  }

  static void topics(Admin admin) throws Exception {
    var topic = new NewTopic("java", PARTITIONS, (short) -1).configs(Map.of("retention.ms", "60000"));
    admin.createTopics(List.of(topic, new NewTopic("resumed", 1, (short) -1))).all().get();
    expect(TopicExistsException.class, admin.createTopics(List.of(topic)).all());
    check(admin.describeTopics(List.of("java")).allTopicNames().get().get("java").partitions().size() == 6, "described");
    var resource = new ConfigResource(ConfigResource.Type.TOPIC, "java");
    check(value(admin, resource, "retention.ms").equals("60000"), "config");
    var change = new AlterConfigOp(new ConfigEntry("retention.ms", "120000"), AlterConfigOp.OpType.SET);
    admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
    check(value(admin, resource, "retention.ms").equals("120000"), "altered config");
    admin.createTopics(List.of(new NewTopic("grown", 1, (short) -1))).all().get();
    admin.createPartitions(Map.of("grown", NewPartitions.increaseTo(3))).all().get();
    check(admin.describeTopics(List.of("grown")).allTopicNames().get().get("grown").partitions().size() == 3, "grown");
    admin.deleteTopics(List.of("grown")).all().get();
    expect(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of("grown")).all());
    check(admin.describeCluster().nodes().get().size() == bootstrap.split(",").length, "cluster");
    say("topics");
  }

  static String value(Admin admin, ConfigResource resource, String name) throws Exception {
    return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name).value();
  }

  static void codecs() throws Exception {
    var values = new ArrayList<String>();
    for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
      var settings = settings();
      settings.put("compression.type", codec);
      try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
        for (int number = 0; number < 100; number++) {
          var record = new ProducerRecord<>("codecs", 0, codec, (codec + number + " ").repeat(20));
          record.headers().add("trace", new byte[] {0, -1});
          values.add(record.value());
          producer.send(record);
        }
      }
    }
    var found = new ArrayList<String>();
    try (var consumer = new KafkaConsumer<>(settings(), new StringDeserializer(), new StringDeserializer())) {
      var partition = new TopicPartition("codecs" + shadow, 0);
      consumer.assign(List.of(partition));
      consumer.seekToBeginning(List.of(partition));
      for (long end = System.currentTimeMillis() + SETTLED_MS; found.size() < values.size(); ) {
        check(System.currentTimeMillis() < end, "codecs come back");
        for (var record : consumer.poll(Duration.ofMillis(200))) {
          check(record.headers().lastHeader("trace").value()[1] == -1, "header");
          found.add(record.value());
        }
      }
    }
    check(found.equals(values), "codecs");
    say("codecs");
  }

  static void group(Admin admin, String group, Class<? extends ConsumerPartitionAssignor> assignor) throws Exception {
    var stopped = new AtomicBoolean();
    var sent = ConcurrentHashMap.<String>newKeySet();
    var stream = CompletableFuture.runAsync(() -> {
      try (var producer = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
        for (int number = 0; !stopped.get(); number++) {
          sent.add(group + number);
          producer.send(new ProducerRecord<>("java", number % PARTITIONS, null, group + number));
          Thread.sleep(3);
        }
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
    });
    var members = new ArrayList<Member>();
    members.add(new Member(group, assignor));
    settle(members);
    members.add(new Member(group, assignor));
    members.add(new Member(group, assignor));
    settle(members);
    check(admin.describeConsumerGroups(List.of(group)).all().get().get(group).members().size() == 3, "three members");
    members.get(0).close();
    settle(members.subList(1, 3));
    stopped.set(true);
    stream.get();
    until(() -> {
      var got = new HashSet<String>();
      for (var member : members) got.addAll(member.values);
      return got.containsAll(sent);
    }, "every record is consumed");
    members.get(1).close();
    members.get(2).close();
    say(group);
  }

  static class Member {
    final Set<String> values = ConcurrentHashMap.newKeySet();
    volatile Set<Integer> owned = Set.of();
    final AtomicBoolean closing = new AtomicBoolean();
    final CompletableFuture<Void> done;

    Member(String group, Class<? extends ConsumerPartitionAssignor> assignor) {
      done = CompletableFuture.runAsync(() -> run(group, assignor), command -> new Thread(command).start());
    }

    void run(String group, Class<? extends ConsumerPartitionAssignor> assignor) {
      var settings = settings();
      settings.put("group.id", group);
      settings.put("auto.offset.reset", "earliest");
      settings.put("session.timeout.ms", "6000");
      settings.put("heartbeat.interval.ms", "300");
      settings.put("partition.assignment.strategy", assignor.getName());
      try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
        consumer.subscribe(List.of("java" + shadow));
        while (!closing.get()) {
          for (var record : consumer.poll(Duration.ofMillis(100))) values.add(record.value());
          var now = new HashSet<Integer>();
          for (var partition : consumer.assignment()) now.add(partition.partition());
          owned = now;
        }
      }
      owned = Set.of();
    }

    void close() throws Exception {
      closing.set(true);
      done.get();
    }
  }

  static void settle(List<Member> members) throws Exception {
    until(() -> {
      var all = new ArrayList<Integer>();
      for (var member : members) {
        if (member.done.isCompletedExceptionally()) member.done.get();
        if (member.owned.isEmpty()) return false;
        all.addAll(member.owned);
      }
      return all.size() == PARTITIONS && new HashSet<>(all).size() == PARTITIONS;
    }, members.size() + " members own every partition once");
  }

  static void records(Admin admin) throws Exception {
    var partition = new TopicPartition("java", 0);
    var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(5)));
    check(deleted.lowWatermarks().get(partition).get().lowWatermark() == 5, "deleted records");
    check(admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).all().get().get(partition).offset() == 5, "start");
    var later = OffsetSpec.forTimestamp(System.currentTimeMillis() + 86_400_000);
    check(admin.listOffsets(Map.of(partition, later)).all().get().get(partition).offset() == -1, "no such time");
    var settings = settings();
    settings.put("max.request.size", "4000000");
    try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
      producer.send(new ProducerRecord<>("java", 0, null, new byte[1_047_000])).get();
      expect(RecordTooLargeException.class, producer.send(new ProducerRecord<>("java", 0, null, new byte[1_050_000])));
    }
    say("records");
  }

  static void transactions() {
    var settings = settings();
    settings.put("transactional.id", "unsupported");
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      check(false, "transactions are refused");
    } catch (org.apache.kafka.common.errors.TimeoutException error) {
      check(false, "transactions are refused at once");
    } catch (KafkaException error) {
      check(error.getMessage().contains("transactions are not built"), "the reason in " + error.getMessage());
      say("transactions");
    }
  }

  static void modernGroups() {
    var settings = settings();
    settings.put("group.id", "modern");
    settings.put("group.protocol", "consumer");
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of("java"));
      ends(() -> consumer.poll(Duration.ofMillis(200)), "group.protocol=classic");
    }
    settings.remove("group.protocol");
    try (var consumer = new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of("java"));
      ends(() -> consumer.poll(Duration.ofMillis(200)), "share group protocol");
    }
    say("modern groups");
  }

  static void ends(Runnable poll, String words) {
    for (long end = System.currentTimeMillis() + SETTLED_MS; ; ) {
      check(System.currentTimeMillis() < end, "an error and not silence");
      try {
        poll.run();
      } catch (UnsupportedVersionException error) {
        check(error.getMessage().contains(words), words + " in " + error.getMessage());
        return;
      }
    }
  }

  static void directories(Admin admin) throws Exception {
    if (bootstrap.contains(",")) { // entries are on bookies: a broker reports the sizes of its partitions and no disk
      var sizes = new ArrayList<Long>();
      for (var logs : admin.describeLogDirs(List.of(1, 2)).allDescriptions().get().values())
        for (var log : logs.values())
          for (var replica : log.replicaInfos().entrySet())
            if (replica.getKey().equals(new TopicPartition("java", 0))) sizes.add(replica.getValue().size());
      check(sizes.size() == 1 && sizes.get(0) > 1_047_000, "bytes of a partition");
      say("directories");
      return;
    }
    var all = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
    check(all.size() == 1, "one log directory");
    var only = all.values().iterator().next();
    check(only.totalBytes().getAsLong() >= only.usableBytes().getAsLong(), "usable bytes");
    check(only.replicaInfos().get(new TopicPartition("java", 0)).size() > 1_047_000, "bytes of a partition");
    var replica = new TopicPartitionReplica("java", 0, 1);
    var here = all.keySet().iterator().next();
    check(admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir().equals(here),
        "the directory of a replica");
    admin.alterReplicaLogDirs(Map.of(replica, here)).all().get();
    expect(LogDirNotFoundException.class, admin.alterReplicaLogDirs(Map.of(replica, "/elsewhere")).all());
    say("directories");
  }

  static void produce(String topic, int from, int to) throws Exception {
    try (var producer = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
      for (int number = from; number < to; number++)
        check(producer.send(new ProducerRecord<>(topic, "" + number)).get().offset() == number, "offset of " + number);
    }
  }

  static void resume(String topic, int from, int to) {
    var settings = settings();
    settings.put("group.id", topic);
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "earliest");
    try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic + shadow));
      int next = from;
      for (long end = System.currentTimeMillis() + SETTLED_MS; next < to; ) {
        check(System.currentTimeMillis() < end, "the group goes on");
        for (var record : consumer.poll(Duration.ofMillis(200)))
          check(record.offset() == next && record.value().equals("" + next++), "record " + next + " is " + record);
      }
      consumer.commitSync();
    }
    say("resumed at " + from);
  }

  static Map<String, Object> settings() {
    return new HashMap<>(Map.of("bootstrap.servers", bootstrap, "reconnect.backoff.max.ms", "500"));
  }

  static void expect(Class<? extends Exception> kind, Future<?> future) throws Exception {
    try {
      future.get();
    } catch (ExecutionException error) {
      check(kind.isInstance(error.getCause()), kind.getSimpleName() + " and not " + error.getCause());
      return;
    }
    check(false, kind.getSimpleName());
  }

  static void until(Callable<Boolean> condition, String what) throws Exception {
    for (long end = System.currentTimeMillis() + SETTLED_MS; !condition.call(); Thread.sleep(20))
      check(System.currentTimeMillis() < end, what);
  }

  static void check(boolean condition, String what) {
    if (!condition) throw new IllegalStateException("expected: " + what);
  }

  static void say(String what) {
    System.out.println("ok " + what);
  }
}
