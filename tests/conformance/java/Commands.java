// Kafka's Java client: `java Commands.java BOOTSTRAP` reads a command in each line and prints its result, all as JSON:
// families/program.py lists the commands.

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.*;

public class Commands {
  static final ObjectMapper JSON = new ObjectMapper();
  static final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
  static final Map<Integer, KafkaConsumer<byte[], byte[]>> readers = new HashMap<>();
  static String bootstrap;

  public static void main(String[] arguments) throws Exception {
    bootstrap = arguments[0];
    for (var lines = new Scanner(System.in, StandardCharsets.UTF_8); lines.hasNextLine(); )
      System.out.println(JSON.writeValueAsString(done(JSON.readTree(lines.nextLine()))));
  }

  static Object done(JsonNode command) throws Exception {
    int id = command.get("id").asInt();
    switch (command.get("do").asText()) {
      case "producer": producers.put(id, producer(command)); return null;
      case "send": return sent(producers.get(id), command.get("records"));
      case "reader": readers.put(id, reader(command)); return null;
      case "poll": return polled(readers.get(id), command.get("ms").asInt());
      case "close":
        if (producers.containsKey(id)) producers.remove(id).close();
        else readers.remove(id).close();
        return null;
      default: throw new IllegalArgumentException(command.toString());
    }
  }

  static KafkaProducer<byte[], byte[]> producer(JsonNode command) {
    var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap));
    if (command.hasNonNull("codec")) settings.put("compression.type", command.get("codec").asText());
    if (command.hasNonNull("idempotent")) settings.put("enable.idempotence", command.get("idempotent").asText());
    if (command.hasNonNull("linger_ms")) settings.put("linger.ms", command.get("linger_ms").asInt());
    return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
  }

  static Object sent(KafkaProducer<byte[], byte[]> producer, JsonNode records) throws Exception {
    var futures = new ArrayList<Future<RecordMetadata>>();
    for (var given : records) {
      var partition = given.get("partition").isNull() ? null : (Integer) given.get("partition").asInt();
      var time = given.get("timestamp_ms").isNull() ? null : (Long) given.get("timestamp_ms").asLong();
      var record = new ProducerRecord<>(given.get("topic").asText(), partition, time, bytes(given.get("key")),
          bytes(given.get("value")));
      for (var header : given.get("headers")) record.headers().add(header.get(0).asText(), bytes(header.get(1)));
      futures.add(producer.send(record));
    }
    var answers = new ArrayList<Object>();
    for (var future : futures) {
      try {
        answers.add(future.get().offset());
      } catch (ExecutionException error) {
        var code = (int) Errors.forException(error.getCause()).code();
        answers.add(Map.of("code", code, "text", error.getCause().toString()));
      }
    }
    return answers;
  }

  static KafkaConsumer<byte[], byte[]> reader(JsonNode command) {
    var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap));
    var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    var partition = new TopicPartition(command.get("topic").asText(), command.get("partition").asInt());
    consumer.assign(List.of(partition));
    consumer.seekToBeginning(List.of(partition));
    return consumer;
  }

  static Object polled(KafkaConsumer<byte[], byte[]> consumer, int milliseconds) {
    var records = new ArrayList<Object>();
    for (var each : consumer.poll(Duration.ofMillis(milliseconds))) {
      var headers = new ArrayList<List<String>>();
      for (var header : each.headers()) headers.add(Arrays.asList(header.key(), text(header.value())));
      records.add(Arrays.asList(each.partition(), each.offset(), text(each.key()), text(each.value()), headers,
          each.timestamp()));
    }
    return records;
  }

  static byte[] bytes(JsonNode text) {
    return text.isNull() ? null : text.asText().getBytes(StandardCharsets.ISO_8859_1);
  }

  static String text(byte[] bytes) {
    return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
  }
}
