// Kafka's Java client: `java ConditionalWrites.java IDEMPOTENCE BOOTSTRAP TOPIC` writes a record, sends a batch of three
// that is refused, and writes a record. It reads a line before each step, and prints a line of JSON after it: null, the
// three errors, and the offset of the last record or its error.

import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class ConditionalWrites {
  static String topic;

  public static void main(String[] arguments) throws Exception {
    topic = arguments[2];
    var settings = new HashMap<String, Object>(
        Map.of("bootstrap.servers", arguments[1], "enable.idempotence", arguments[0], "linger.ms", 200));
    var step = new Scanner(System.in);
    try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
      step.nextLine();
      producer.send(record("first", "0")).get();
      System.out.println("null");
      step.nextLine();
      var sent = new ArrayList<Future<RecordMetadata>>();
      for (int number = 0; number < 3; number++) sent.add(producer.send(record("refused", number == 2 ? "9" : null)));
      var errors = new ArrayList<String>();
      for (var each : sent) errors.add(error(each));
      System.out.println("[" + String.join(", ", errors) + "]");
      step.nextLine();
      var next = producer.send(record("next", null));
      var failed = error(next);
      System.out.println(failed.equals("null") ? next.get().offset() : failed);
    }
  }

  static ProducerRecord<String, String> record(String value, String expected) {
    var record = new ProducerRecord<String, String>(topic, 0, null, value);
    if (expected != null) record.headers().add("gnomon.expected.offset", expected.getBytes());
    return record;
  }

  static String error(Future<RecordMetadata> sent) throws Exception {
    try {
      sent.get();
      return "null";
    } catch (ExecutionException error) {
      return '"' + error.getCause().toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
  }
}
