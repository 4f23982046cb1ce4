// What waits for what: writes for steps and for each other, the rest behind them, replies for nothing.
#include "table/mailbox.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "table_support.hpp"
#include "transport/foreground.hpp"

namespace gradwire::table {
namespace {

constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

Message message(MessageKind kind, std::uint64_t number, std::size_t payload = 0) {
  Message message;
  message.head.kind = kind;
  message.head.number = number;
  if (kind == MessageKind::push) {
    message.head.count = 1000;  // that it may be so large
  }
  message.payload.resize(payload);
  return message;
}

class MailboxTest : public ::testing::Test {
 protected:
  /// Numbers of what rank 1 has got until now.
  const std::vector<std::uint64_t>& got() {
    for (int i = 0; i < 100; ++i) {  // in one process nothing takes time
      sender.progress(std::chrono::microseconds(0), [](int, const Message&) {});
      receiver.progress(std::chrono::microseconds(0),
                        [this](int, const Message& message) { numbers.push_back(message.head.number); });
    }
    return numbers;
  }

  std::vector<std::shared_ptr<Transport>> world = make_inproc_world(3);
  Mailbox sender{world[0], {.rows = 1000, .width = 100}}, receiver{world[1], {.rows = 1000, .width = 100}};
  Mailbox third{world[2], {.rows = 1000, .width = 100}};
  std::vector<std::uint64_t> numbers;
};

using Numbers = std::vector<std::uint64_t>;

TEST_F(MailboxTest, OnlyRepliesPassAWriteThatWaits) {
  sender.send(1, message(MessageKind::tick, 0));
  sender.send(1, message(MessageKind::push, 1, 1000));
  sender.send(1, message(MessageKind::tick, 2));
  sender.send(1, message(MessageKind::pull, 3));
  sender.send(1, message(MessageKind::reply, 4));
  sender.send(2, message(MessageKind::text, 5));  // to another rank, which nothing waits for
  sender.post_waiting(0);
  EXPECT_EQ(got(), (Numbers{0, 4}));
  EXPECT_EQ(sender.left(), 1U) << "a message that waits has left";
  sender.post_waiting(0);
  EXPECT_EQ(got(), (Numbers{0, 4}));
  sender.post_waiting(kAll);
  EXPECT_EQ(got(), (Numbers{0, 4, 1, 2, 3}));
  third.progress(std::chrono::microseconds(0), [](int, const Message& text) { EXPECT_EQ(text.head.number, 5U); });
  static_cast<void>(got());
  EXPECT_EQ(sender.left(), 6U);
}

TEST_F(MailboxTest, FewWritesAreUnderWayAtOnce) {
  for (std::uint64_t number = 0; number < 5; ++number) {
    sender.send(1, message(MessageKind::push, number, 40'000));
  }
  sender.send(1, message(MessageKind::tick, 5));
  // Nobody receives: two are on the way, then the rest waits for them.
  sender.post_waiting(64 << 10);
  sender.post_waiting(64 << 10);
  EXPECT_EQ(got(), (Numbers{0, 1}));
  sender.post_waiting(64 << 10);
  EXPECT_EQ(got(), (Numbers{0, 1, 2, 3}));
  sender.post_waiting(64 << 10);
  EXPECT_EQ(got(), (Numbers{0, 1, 2, 3, 4, 5}));
}

// A sender whose last message left in an hour from now: what it holds back cannot come by chance. Mutations tried: the
// driver does not ask; replies wait too.
TEST(TableYields, PushesWaitForStepsAndReadsDoNot) {
  transport::Foreground step;
  std::atomic<bool> over{false};
  TableOptions options = test::table_options(100, 4);
  options.staleness = 8;
  test::run_tables(2, options, [&](Table& table) {
    if (table.rank() == 0) {
      step.note(true, true, std::chrono::steady_clock::now() + std::chrono::hours(1));
    }
    table.synchronize();
    const std::vector<float> ones(400, 1.0F);
    const std::uint64_t sent = table.statistics().traffic.bytes_sent;
    table.push(test::all_ids(table), ones);
    table.tick();
    for (int i = 0; i < 20 && table.rank() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      table.progress();
    }
    if (table.rank() == 0) {
      EXPECT_EQ(table.statistics().traffic.bytes_sent, sent) << "a push left";
      over = true;
      step.note(false, false);
    }
    table.synchronize();
    EXPECT_EQ(test::pull(table, {7}), (std::vector<float>(4, -2.0F)));
  });
  EXPECT_TRUE(over);
}

}  // namespace
}  // namespace gradwire::table
