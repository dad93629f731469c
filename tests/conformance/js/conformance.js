// kafkajs: `node conformance.js first|second BOOTSTRAP`; between the two the broker is killed.
// Any wrong result is thrown, and ends the program with an error.

const { Kafka, CompressionTypes, logLevel } = require('kafkajs')

const PARTITIONS = 6
const SETTLED_MS = 60000
const [phase, bootstrap] = process.argv.slice(2)
const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'

const say = (what) => console.log(`ok ${what}`)

function check(condition, what) {
  if (!condition) throw new Error(`expected: ${what}`)
}

async function until(condition, what) {
  const end = Date.now() + SETTLED_MS
  while (!condition()) {
    check(Date.now() < end, what)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

async function refused(work, code) {
  try {
    await work
  } catch (error) {
    const found = error.errors ? error.errors[0].type : error.type
    check(code === undefined || found === code, `${code} and not ${error}`)
    return
  }
  check(false, `${code}`)
}

async function topics(admin) {
  const configEntries = [{ name: 'retention.ms', value: '60000' }]
  await admin.createTopics({ topics: [{ topic: 'js', numPartitions: PARTITIONS, configEntries }] })
  await admin.createTopics({ topics: [{ topic: 'resumed', numPartitions: 1 }, { topic: 'codecs', numPartitions: 1 }, { topic: 'grown', numPartitions: 1 }] })
  check((await admin.createTopics({ topics: [{ topic: 'js' }] })) === false, 'the topic exists')
  const described = await admin.fetchTopicMetadata({ topics: ['js'] })
  check(described.topics[0].partitions.length === PARTITIONS, 'partitions')
  const resource = { type: 2, name: 'js', configNames: ['retention.ms'] }
  const configs = await admin.describeConfigs({ resources: [resource] })
  check(configs.resources[0].configEntries[0].configValue === '60000', 'config')
  await admin.createPartitions({ topicPartitions: [{ topic: 'grown', count: 3 }] })
  check((await admin.fetchTopicMetadata({ topics: ['grown'] })).topics[0].partitions.length === 3, 'grown')
  await admin.deleteTopics({ topics: ['grown'] })
  check(!(await admin.listTopics()).includes('grown'), 'deleted')
  say('topics')
}

async function codecs() {
  const values = []
  const producer = kafka.producer()
  await producer.connect()
  for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
    const messages = []
    for (let number = 0; number < 100; number++) {
      const value = `${compression} ${number} `.repeat(20)
      messages.push({ key: 'key', value, headers: { trace: 'header' } })
      values.push(value)
    }
    await producer.send({ topic: 'codecs', compression, messages })
  }
  await producer.disconnect()
  const found = []
  const consumer = kafka.consumer({ groupId: 'codecs', maxWaitTimeInMs: 500 })
  await consumer.connect()
  await consumer.subscribe({ topic: 'codecs', fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => found.push(message.value.toString()) })
  await until(() => found.length >= values.length, 'codecs come back')
  await consumer.disconnect()
  check(JSON.stringify(found) === JSON.stringify(values), 'codecs')
  say('codecs')
}

class Member {
  constructor(group) {
    this.values = new Set()
    this.owned = []
    this.consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 500 })
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.owned = payload.memberAssignment.js || []
    })
  }

  async join() {
    await this.consumer.connect()
    await this.consumer.subscribe({ topic: 'js', fromBeginning: true })
    await this.consumer.run({ eachMessage: async ({ message }) => this.values.add(message.value.toString()) })
    return this
  }
}

async function settle(members) {
  await until(() => {
    const owned = members.flatMap((member) => member.owned)
    return members.every((member) => member.owned.length) && owned.length === PARTITIONS && new Set(owned).size === PARTITIONS
  }, `${members.length} members own every partition once`)
}

async function group(admin) {
  const sent = new Set()
  let stopped = false
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  const stream = (async () => {
    for (let number = 0; !stopped; number++) {
      await producer.send({ topic: 'js', messages: [{ value: `${number}`, partition: number % PARTITIONS }] })
      sent.add(`${number}`)
    }
  })()
  const members = [await new Member('eager').join()]
  await settle(members)
  members.push(...(await Promise.all([new Member('eager').join(), new Member('eager').join()])))
  await settle(members)
  check((await admin.describeGroups(['eager'])).groups[0].members.length === 3, 'three members')
  await members[0].consumer.disconnect()
  members[0].owned = []
  await settle(members.slice(1))
  stopped = true
  await stream
  await producer.disconnect()
  await until(() => [...sent].every((value) => members.some((member) => member.values.has(value))), 'every record is consumed')
  await Promise.all(members.slice(1).map((member) => member.consumer.disconnect()))
  say('eager')
}

async function transactions() {
  const producer = kafka.producer({ transactionalId: 'unsupported', idempotent: true, maxInFlightRequests: 1, retry: { retries: 1 } })
  await producer.connect()
  await refused(producer.transaction())
  await producer.disconnect()
  say('transactions')
}

async function produce(from, to) {
  const producer = kafka.producer()
  await producer.connect()
  for (let number = from; number < to; number++) {
    const [answer] = await producer.send({ topic: 'resumed', messages: [{ value: `${number}` }] })
    check(answer.baseOffset === `${number}`, `offset ${number}`)
  }
  await producer.disconnect()
}

async function resume(from, to) {
  const found = []
  const consumer = kafka.consumer({ groupId: 'resumed', maxWaitTimeInMs: 500 })
  await consumer.connect()
  await consumer.subscribe({ topic: 'resumed', fromBeginning: true })
  await consumer.run({ eachMessage: async ({ message }) => found.push(Number(message.value)) })
  await until(() => found.length >= to - from, 'the group goes on')
  await consumer.stop()
  await consumer.disconnect()
  check(found.every((number, index) => number === from + index), `from ${from}: ${found}`)
  say(`resumed at ${from}`)
}

async function first(admin) {
  await topics(admin)
  await codecs()
  await group(admin)
  await transactions()
  await produce(0, 50)
  await resume(0, 50)
}

async function second(admin) {
  await produce(50, 100)
  await resume(50, 100)
  await admin.setOffsets({ groupId: 'resumed', topic: 'resumed', partitions: [{ partition: 0, offset: '90' }] })
  const [{ partitions }] = await admin.fetchOffsets({ groupId: 'resumed', topics: ['resumed'] })
  check(partitions.find((each) => each.partition === 0).offset === '90', 'reset')
  await admin.deleteGroups(['resumed'])
  check(!(await admin.listGroups()).groups.some((each) => each.groupId === 'resumed'), 'deleted group')
  say('reset')
}

async function main() {
  const admin = kafka.admin()
  await admin.connect()
  await (phase === 'first' ? first(admin) : second(admin))
  await admin.disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
