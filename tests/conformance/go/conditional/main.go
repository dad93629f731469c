// franz-go: `conditional IDEMPOTENCE BOOTSTRAP TOPIC` writes a record, sends a batch of three that is refused, and
// writes a record. It reads a line before each step, and prints a line of JSON after it: null, the three errors, and the
// offset of the last record or its error.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[2], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(200 * time.Millisecond),
	}
	if os.Args[1] == "false" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	must(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	input := bufio.NewReader(os.Stdin)

	step(input)
	must(client.ProduceSync(ctx, record("first", "0")).FirstErr())
	say(nil)

	step(input)
	errors := []string{}
	for _, result := range client.ProduceSync(ctx, record("refused", ""), record("refused", ""), record("refused", "9")) {
		errors = append(errors, fmt.Sprint(result.Err))
	}
	say(errors)

	step(input)
	next, err := client.ProduceSync(ctx, record("next", "")).First()
	if err == nil {
		say(next.Offset)
	} else {
		say(err.Error())
	}
}

func record(value, expected string) *kgo.Record {
	made := &kgo.Record{Topic: os.Args[3], Value: []byte(value)}
	if expected != "" {
		made.Headers = []kgo.RecordHeader{{Key: "gnomon.expected.offset", Value: []byte(expected)}}
	}
	return made
}

func step(input *bufio.Reader) {
	_, err := input.ReadString('\n')
	must(err)
}

func say(what any) {
	must(json.NewEncoder(os.Stdout).Encode(what))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
