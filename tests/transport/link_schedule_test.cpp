// Tests links that change: the grammar, arithmetic done by hand, and messages in flight while the rate changes, by a
// clock of the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "emulation/throttled.hpp"
#include "gradwire/emulation.hpp"
#include "tests/transport/exchange.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Time = std::chrono::steady_clock::time_point;

std::string message_of(const std::string& text) {
  try {
    return "taken as " + LinkSchedule::parse(text).to_string();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
}

TEST(LinkSchedule, ParsesAndPrints) {
  const LinkSchedule schedule =
      LinkSchedule::parse("1Gbit/s,50us until 30s,100Mbit/s until 60s , unlimited,1ms ; noise 30% per 100ms seed 7");
  ASSERT_EQ(schedule.phases().size(), 3U);
  EXPECT_EQ(schedule.phases()[0].link.latency, std::chrono::microseconds(50));
  EXPECT_EQ(schedule.phases()[1].end, seconds(60));
  EXPECT_EQ(schedule.phases()[2].link.bytes_per_second, 0);
  EXPECT_EQ(schedule.noise().sigma, 0.3);
  EXPECT_EQ(schedule.noise().seed, 7U);
  const std::string canonical =
      "1Gbit/s,50us until 30s, 100Mbit/s until 1min, unlimited,1ms; noise 30% per 100ms seed 7";
  EXPECT_EQ(LinkSchedule::parse(schedule.to_string()).to_string(), schedule.to_string());
  EXPECT_EQ(schedule.to_string(), LinkSchedule::parse(canonical).to_string());
  EXPECT_EQ(LinkSchedule::parse("1Gbit/s; noise 12.5% per 1s").to_string(), "1Gbit/s; noise 12.5% per 1s seed 0");
  EXPECT_TRUE(LinkSchedule::parse("1Gbit/s,50us").constant());
  EXPECT_EQ(LinkSchedule::parse("1Gbit/s,50us").to_string(), "1Gbit/s,50us");
  EXPECT_FALSE(schedule.constant());
  EXPECT_TRUE(LinkSchedule(Link::parse("10MB/s")).constant());
}

TEST(LinkSchedule, ErrorsNameThePlace) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"1Gbit/s,", "link \"1Gbit/s,\""},
      {"1Gbit/s until 30s", "phase 1 (1Gbit/s) is the last and ends at 30s"},
      {"1Gbit/s until 30s, 100Mbit/s until 30s, 1Gbit/s", "phase 2 (100Mbit/s) ends at 30s, which must be after 30s"},
      {"1Gbit/s until 0s, 100Mbit/s", "phase 1 (1Gbit/s) ends at 0ns"},
      {"1Gbit/s, 100Mbit/s until 30s, 1Gbit/s", "phase 1 (1Gbit/s) has no end, but others follow"},
      {"1Gbit/s until 30s, 0Mbit/s until 60s, 1Gbit/s", "phase 2 \"0Mbit/s until 60s\": link \"0Mbit/s\": bad rate"},
      {"1Gbit/s until 30s, fast until 60s, 1Gbit/s", "phase 2 \"fast until 60s\""},
      {"1Gbit/s until soon, 1Gbit/s", "phase 1 \"1Gbit/s until soon\": bad duration"},
      {"1Gbit/s until 30s,", "phase 2 \"\""},
      {"1Gbit/s until 30s, 50us", "phase 2 \"50us\""},
      {"until 30s, 1Gbit/s", "phase 1 \"until 30s\""},
      {"1Gbit/s;", "expected for example \"noise 30% per 100ms seed 7\""},
      {"1Gbit/s; 30% per 100ms", "\"30% per 100ms\": expected"},
      {"1Gbit/s; noise 300% per 100ms", "bad share \"300%\""},
      {"1Gbit/s; noise 30% per 100", "bad duration \"100\""},
      {"1Gbit/s; noise 30% per 1us", "every 1us; at least 1ms"},
      {"1Gbit/s; noise 30% per 1s seed x", "bad seed \"x\""}};
  for (const auto& [text, part] : cases) {
    EXPECT_THAT(message_of(text), HasSubstr(part));
    EXPECT_THAT(message_of(text), HasSubstr(std::string("\"") + text + "\""));
  }
  EXPECT_THROW((void)LinkSchedule(std::vector<LinkPhase>{}), Error);
  EXPECT_THROW((void)LinkSchedule(Link{.bytes_per_second = NAN}), Error);
  EXPECT_THROW((void)LinkSchedule(Link{.latency = nanoseconds(-1)}), Error);
}

TEST(LinkSchedule, PhasesHoldUntilTheirEnd) {
  const LinkSchedule schedule = LinkSchedule::parse("1MB/s,1ms until 10s, 2MB/s until 20s, 3MB/s");
  EXPECT_EQ(schedule.rate_at(seconds(-5)), 1e6);
  EXPECT_EQ(schedule.rate_at(seconds(10) - nanoseconds(1)), 1e6);
  EXPECT_EQ(schedule.link_at(seconds(9)).latency, milliseconds(1));
  EXPECT_EQ(schedule.rate_at(seconds(10)), 2e6);
  EXPECT_EQ(schedule.rate_at(seconds(1000)), 3e6);
  EXPECT_EQ(schedule.next_change(seconds(0)), seconds(10));
  EXPECT_EQ(schedule.next_change(seconds(10)), seconds(20));
  EXPECT_EQ(schedule.next_change(seconds(20)), LinkPhase::kForEver);
}

TEST(LinkSchedule, BytesPassAtTheRatesOnTheirWay) {
  const LinkSchedule schedule = LinkSchedule::parse("1MB/s until 10s, 4MB/s until 12s, 2MB/s until 13s, unlimited");
  EXPECT_EQ(schedule.end_of(seconds(0), 5e6), seconds(5));
  EXPECT_EQ(schedule.end_of(seconds(0), 10e6), seconds(10));
  EXPECT_EQ(schedule.end_of(seconds(8), 6e6), seconds(11));            // 2 MB in 2 s, 4 MB in 1 s
  EXPECT_EQ(schedule.end_of(seconds(9), 10e6), milliseconds(12'500));  // 1 + 8 + 1 MB
  EXPECT_EQ(schedule.end_of(seconds(9), 1e12), seconds(13));           // the rest at once
  EXPECT_EQ(schedule.end_of(seconds(11), 0), seconds(11));
  EXPECT_EQ(schedule.end_of(seconds(-1), 2e6), seconds(1));
}

TEST(LinkSchedule, NoiseIsSeededAndHasMeanOne) {
  const LinkSchedule schedule = LinkSchedule::parse("1MB/s until 500s, 2MB/s; noise 30% per 100ms seed 7");
  const LinkSchedule again = LinkSchedule::parse(schedule.to_string());
  const LinkSchedule other = LinkSchedule::parse("1MB/s until 500s, 2MB/s; noise 30% per 100ms seed 8");
  double sum = 0, squares = 0;
  int differ = 0;
  constexpr int kIntervals = 5000;
  for (int i = 0; i < kIntervals; ++i) {
    const nanoseconds start = i * milliseconds(100);
    const double factor = schedule.rate_at(start) / 1e6;
    EXPECT_EQ(schedule.rate_at(start + milliseconds(99)), schedule.rate_at(start));
    EXPECT_EQ(again.rate_at(start), schedule.rate_at(start));
    differ += other.rate_at(start) != schedule.rate_at(start) ? 1 : 0;
    sum += factor;
    squares += std::log(factor) * std::log(factor);
  }
  EXPECT_EQ(differ, kIntervals);
  EXPECT_NEAR(sum / kIntervals, 1, 0.02);                              // 4.7 standard errors
  EXPECT_NEAR(squares / kIntervals, 0.3 * 0.3 + 0.045 * 0.045, 0.01);  // the logarithm's mean is -sigma^2 / 2
  EXPECT_EQ(schedule.next_change(milliseconds(250)), milliseconds(300));
  EXPECT_EQ(schedule.next_change(milliseconds(-250)), milliseconds(-200));
}

// For any schedule, bytes sent in two parts take as long as in one, and more bytes never take less time.
TEST(LinkSchedule, PartsTakeAsLongAsTheWhole) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (int i = 0; i < 300; ++i) {
    const LinkSchedule schedule(
        {{{uniform(1e8, 2e8)}, milliseconds(400)}, {{uniform(1e8, 2e8)}, milliseconds(900)}, {{uniform(1e8, 2e8)}}},
        {.sigma = uniform(0, 0.3), .interval = milliseconds(10), .seed = random()});
    const nanoseconds start(static_cast<std::int64_t>(uniform(-1e8, 1.2e9)));
    const double first = uniform(0, 1e8), second = uniform(0, 1e8);
    const nanoseconds half = schedule.end_of(start, first);
    const nanoseconds whole = schedule.end_of(start, first + second);
    EXPECT_GE(half, start);
    EXPECT_GE(whole, half);
    EXPECT_NEAR(static_cast<double>((schedule.end_of(half, second) - whole).count()), 0,
                100);  // ns cut off, at a different rate
  }
}

/// Ranks whose clock this thread moves.
class ScheduledWorld {
 public:
  ScheduledWorld(int ranks, const std::string& link, std::optional<nanoseconds> start = nanoseconds(0)) {
    for (auto& inner : make_inproc_world(ranks)) {
      const auto origin = start ? std::optional(at(*start)) : std::nullopt;
      endpoints.push_back(transport::make_throttled(inner, LinkSchedule::parse(link), origin, [this] { return now; }));
    }
  }
  static Time at(nanoseconds time) { return Time(seconds(1000)) + time; }

  struct Message {
    Bytes out, in;
    Operation send, receive;
  };
  /// Posts a message on both sides now. Messages stay until the end of the test.
  Message& post(int from, int to, std::size_t bytes, Tag tag = 0) {
    Message& message = post_send(from, to, bytes, tag);
    post_receive(message, from, to, tag);
    return message;
  }
  Message& post_send(int from, int to, std::size_t bytes, Tag tag = 0) {
    messages_.push_back(std::make_unique<Message>());
    Message& message = *messages_.back();
    message.out.assign(bytes, std::byte{5});
    message.in.resize(bytes);
    endpoints[static_cast<std::size_t>(from)]->post_send(message.send, to, tag, message.out);
    return message;
  }
  void post_receive(Message& message, int from, int to, Tag tag = 0) {
    endpoints[static_cast<std::size_t>(to)]->post_receive(message.receive, from, tag, message.in);
    progress();
  }
  void advance_to(nanoseconds time) {
    now = at(time);
    progress();
  }
  /// Expects that neither side is done a microsecond before `time`, and both are done at `time`.
  void expect_over_at(const Message& message, nanoseconds time) {
    advance_to(time - std::chrono::microseconds(1));
    EXPECT_TRUE(message.send.pending());
    EXPECT_TRUE(message.receive.pending());
    advance_to(time);
    EXPECT_TRUE(message.send.done());
    EXPECT_TRUE(message.receive.done());
  }

  Time now = at(nanoseconds(0));
  std::vector<std::shared_ptr<Transport>> endpoints;

 private:
  void progress() {
    for (int round = 0; round < 2; ++round) {
      for (auto& endpoint : endpoints) {
        while (endpoint->progress(kNow)) {
        }
      }
    }
  }
  std::vector<std::unique_ptr<Message>> messages_;
};

TEST(ThrottledSchedule, RateChangesWhileAMessageIsInFlight) {
  ScheduledWorld world(2, "1MB/s until 10s, 4MB/s until 12s, 1MB/s");
  world.advance_to(milliseconds(9'500));
  // 0.5 MB pass until 10 s, and 1.5 MB in the following 0.375 s.
  world.expect_over_at(world.post(0, 1, 2'000'000), milliseconds(10'375));
  world.advance_to(seconds(11));
  // The link is faster until 12 s, then slower: it carries 4 MB and 1 MB.
  world.expect_over_at(world.post(1, 0, 5'000'000), seconds(13));
}

TEST(ThrottledSchedule, MessagesThatWaitForTheWireStartAtTheirOwnRate) {
  ScheduledWorld world(2, "1MB/s until 1s, 10MB/s");
  auto& first = world.post(0, 1, 1'000'000, 0);   // takes the whole first second
  auto& second = world.post(0, 1, 1'000'000, 1);  // takes 0.1 s of the next second
  world.expect_over_at(first, seconds(1));
  world.expect_over_at(second, milliseconds(1'100));
}

TEST(ThrottledSchedule, IngressFollowsTheScheduleToo) {
  ScheduledWorld world(3, "1MB/s until 1s, 10MB/s");
  auto& first = world.post(1, 0, 1'000'000);
  auto& second = world.post(2, 0, 1'000'000);
  world.advance_to(milliseconds(1'099));
  EXPECT_TRUE(first.receive.done());
  EXPECT_TRUE(second.send.done());        // the sender's wire was free after a second
  EXPECT_TRUE(second.receive.pending());  // the receiver's was not
  world.advance_to(milliseconds(1'100));
  EXPECT_TRUE(second.receive.done());
}

TEST(ThrottledSchedule, NothingOvertakesWhenTheLatencyFalls) {
  ScheduledWorld world(2, "1MB/s,10s until 1s, 1MB/s");
  world.advance_to(milliseconds(800));
  auto& slow = world.post(0, 1, 100'000, 0);   // on the wire until 0.9 s, then in flight for 10 s
  auto& quick = world.post(0, 1, 100'000, 1);  // on the wire until 1 s, without latency
  world.advance_to(milliseconds(10'899));
  EXPECT_TRUE(quick.receive.pending());
  world.advance_to(milliseconds(10'900));
  EXPECT_TRUE(slow.receive.done());
  EXPECT_TRUE(quick.receive.done());
}

TEST(ThrottledSchedule, TimeCountsFromTheStartThatIsGiven) {
  ScheduledWorld world(2, "1MB/s until 10s, 4MB/s", seconds(-10));
  world.expect_over_at(world.post(0, 1, 4'000'000), seconds(1));
}

TEST(ThrottledSchedule, TimeCountsFromTheFirstUseByAnyRank) {
  ScheduledWorld world(2, "1MB/s until 10s, 4MB/s", std::nullopt);
  world.advance_to(seconds(5));
  auto& first = world.post_send(0, 1, 1'000'000);
  world.advance_to(seconds(8));
  world.post_receive(first, 0, 1);
  EXPECT_TRUE(first.receive.done());
  // Rank 1 begins at 8 s; it has learned from rank 0's message that the schedule began at 5 s.
  world.advance_to(seconds(14));
  world.expect_over_at(world.post(1, 0, 5'000'000), seconds(16));
}

TEST(ThrottledSchedule, SaysWhatItIs) {
  EXPECT_EQ(ScheduledWorld(1, "1MB/s,1ms until 10s, 4MB/s; noise 30% per 100ms seed 7")
                .endpoints[0]
                ->capabilities()
                .emulation,
            "emulated 8Mbit/s,1ms until 10s, 32Mbit/s; noise 30% per 100ms seed 7");
}

}  // namespace
}  // namespace gradwire::test
