// kafkajs: `node conditional_writes.js IDEMPOTENCE BOOTSTRAP TOPIC` writes a record, sends a batch of three that is
// refused, and writes a record. It reads a line before each step, and prints a line of JSON after it: null, the three
// errors, and the offset of the last record or its error.

const readline = require('node:readline')
const { Kafka, logLevel } = require('kafkajs')

const [idempotence, bootstrap, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

const say = (what) => console.log(JSON.stringify(what))
const message = (value, expected) => ({ value, partition: 0, headers: expected ? { 'gnomon.expected.offset': expected } : {} })

async function main() {
  const steps = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]()
  const producer = kafka.producer({ idempotent: idempotence === 'true' })
  await producer.connect()
  await steps.next()
  await producer.send({ topic, messages: [message('first', '0')] })
  say(null)
  await steps.next()
  try {
    await producer.send({ topic, messages: [message('refused'), message('refused'), message('refused', '9')] })
    say([])
  } catch (error) {
    say(Array(3).fill(`${error}`))
  }
  await steps.next()
  try {
    const [answer] = await producer.send({ topic, messages: [message('next')] })
    say(Number(answer.baseOffset))
  } catch (error) {
    say(`${error}`)
  }
  process.exit(0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
