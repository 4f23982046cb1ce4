// Tests lanes over connections that break at any byte, are damaged, or belong to strangers: nothing is lost, comes
// twice or out of order.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <array>
#include <random>

#include "tests/transport/connected.hpp"
#include "transport/tcp/tcp_lane.hpp"

namespace gradwire::test {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using transport::tcp::Clock;
using transport::tcp::PacketHead;
using transport::tcp::PacketKind;
using transport::tcp::Socket;
using transport::tcp::TcpLane;

// The connection between the ends of two lanes: it passes on a given number of bytes, damages them, and breaks.
class Wire {
 public:
  Wire() {
    auto [left, left_far] = connected();
    auto [right, right_far] = connected();
    ends_ = {std::move(left_far), std::move(right_far)};
    given_ = {std::move(left), std::move(right)};
  }
  Socket end(std::size_t side) { return std::move(given_.at(side)); }

  /// Passes bytes from each side to the other, at most `most` bytes in total; flips one bit of the byte with index
  /// `damaged`.
  std::size_t pass(std::size_t most, std::size_t damaged = SIZE_MAX) {
    std::size_t passed = 0;
    for (bool more = true; more && passed < most;) {
      more = false;
      for (const std::size_t side : {0U, 1U}) {
        std::array<std::byte, 4096> bytes{};
        const Socket& from = ends_.at(side);
        if (!from.valid()) {
          continue;
        }
        const ssize_t there =
            recv(from.fd(), bytes.data(), std::min(bytes.size(), most - passed), MSG_DONTWAIT | MSG_PEEK);
        if (there <= 0) {
          continue;
        }
        if (damaged >= total_ && damaged < total_ + static_cast<std::size_t>(there)) {
          bytes.at(damaged - total_) ^= std::byte{4};
        }
        const ssize_t sent =
            ::send(ends_.at(1 - side).fd(), bytes.data(), static_cast<std::size_t>(there), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
          EXPECT_EQ(recv(from.fd(), bytes.data(), static_cast<std::size_t>(sent), MSG_DONTWAIT), sent);
          total_ += static_cast<std::size_t>(sent);
          passed += static_cast<std::size_t>(sent);
          more = true;
        }
      }
    }
    return passed;
  }
  /// Cuts both ends, or the end of one side.
  void cut() { ends_ = {}; }
  void cut(std::size_t side) { ends_.at(side) = Socket(); }

 private:
  std::array<Socket, 2> ends_;
  std::array<Socket, 2> given_;
  std::size_t total_ = 0;
};

struct Side {
  explicit Side(Socket first, TcpLane::Role role) : lane(std::move(first), role) {}
  TcpLane lane;
  std::vector<std::string> heard;
  TcpLane::Change change = TcpLane::Change::none;

  void say(const std::string& text, PacketKind kind = PacketKind::message) {
    EXPECT_TRUE(lane.push(kind, std::as_bytes(std::span(text))));
  }
  void take() {
    std::vector<TcpLane::Taken> taken;
    if (const auto now = lane.take(taken, SIZE_MAX); now != TcpLane::Change::none) {
      change = now;
    }
    for (const TcpLane::Taken& one : taken) {
      heard.emplace_back(reinterpret_cast<const char*>(one.body.data()), one.body.size());
    }
    lane.flush();
  }
};

struct Pair {
  Pair()
      : wire(std::make_unique<Wire>()),
        left(wire->end(0), TcpLane::Role::dials),
        right(wire->end(1), TcpLane::Role::accepts) {}
  std::unique_ptr<Wire> wire;
  Side left;
  Side right;

  void run(std::size_t damaged = SIZE_MAX) {
    for (bool more = true; more;) {
      left.take();
      right.take();
      more = wire->pass(SIZE_MAX, damaged) > 0;
    }
  }
  void anew() {
    wire = std::make_unique<Wire>();
    left.lane.offer(wire->end(0));
    right.lane.offer(wire->end(1));
  }
};

std::vector<std::string> texts(const std::string& name, int count) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(name + std::string(static_cast<std::size_t>(7 * i % 40), 'x') + std::to_string(i));
  }
  return all;
}

TEST(Lanes, MessagesComeInOrderAndMemoryIsGivenBack) {
  Pair pair;
  const auto a = texts("a", 30);
  for (const std::string& text : a) {
    pair.left.say(text);
    pair.right.say(text);
  }
  EXPECT_GT(pair.left.lane.unsent(), 0U) << "the other side has said nothing yet";
  pair.run();
  EXPECT_THAT(pair.left.heard, ElementsAreArray(a));
  EXPECT_THAT(pair.right.heard, ElementsAreArray(a));
  EXPECT_EQ(pair.left.lane.unsent(), 0U);
  EXPECT_TRUE(pair.left.lane.live() && pair.right.lane.live());
}

// The connection breaks after every byte in turn, on both sides at once, or on one of them, which may notice last.
// Mutations tried: sent packets are not kept; acknowledged packets are sent again; a number that is not the next one is
// accepted; `resume` acknowledges one too many; a packet that was sent in part continues where it was.
TEST(Lanes, AConnectionMayBreakAtEveryByte) {
  const auto a = texts("a", 5);
  const auto b = texts("b", 5);
  for (int which = 0; which < 3; ++which) {
    std::size_t at = 0;
    for (bool more = true; more; ++at) {
      Pair pair;
      for (std::size_t i = 0; i < 3; ++i) {
        pair.left.say(a[i]);
        pair.right.say(b[i]);
      }
      std::size_t passed = 0;
      std::size_t now = 1;
      while (now > 0 && passed < at) {
        pair.left.take();
        pair.right.take();
        now = pair.wire->pass(at - passed);
        passed += now;
      }
      more = passed == at;  // otherwise all bytes have arrived
      which == 0 ? pair.wire->cut() : pair.wire->cut(static_cast<std::size_t>(which - 1));
      pair.left.say(a[3]);
      pair.right.say(b[3]);
      pair.left.take();
      pair.right.take();
      pair.anew();
      pair.left.say(a[4]);
      pair.right.say(b[4]);
      pair.run();
      ASSERT_THAT(pair.left.heard, ElementsAreArray(b)) << "behind byte " << at << ", cut " << which;
      ASSERT_THAT(pair.right.heard, ElementsAreArray(a)) << "behind byte " << at << ", cut " << which;
    }
    EXPECT_GT(at, 300U);
  }
}

// Mutation tried: no checksum of the head, or of the body.
TEST(Lanes, AFlippedBitBreaksTheConnectionAndNothingElse) {
  const auto a = texts("a", 4);
  std::size_t broken = 0;
  for (std::size_t at = 0; at < 500; ++at) {
    Pair pair;
    for (const std::string& text : a) {
      pair.left.say(text);
      pair.right.say(text);
    }
    pair.run(at);
    for (int i = 0; i < 2 && (pair.left.heard.size() < a.size() || pair.right.heard.size() < a.size()); ++i) {
      ++broken;
      pair.wire->cut();
      pair.anew();
      pair.run();
    }
    ASSERT_THAT(pair.left.heard, ElementsAreArray(a)) << at;
    ASSERT_THAT(pair.right.heard, ElementsAreArray(a)) << at;
  }
  EXPECT_GT(broken, 300U);
}

// A random connection breaks again and again, while both sides go on sending.
TEST(Lanes, ManyBreaksLoseNothing) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Pair pair;
  std::vector<std::string> a;
  std::vector<std::string> b;
  for (int round = 0; round < 2000; ++round) {
    for (auto* const said : {&a, &b}) {
      said->push_back(std::string(random() % 300, said == &a ? 'a' : 'b') + std::to_string(round));
      (said == &a ? pair.left : pair.right).say(said->back());
    }
    for (int i = 0; i < 3; ++i) {
      pair.left.take();
      pair.right.take();
      pair.wire->pass(random() % 500);
    }
    if (random() % 4 == 0) {
      pair.wire->cut(random() % 2);
      pair.wire->cut();
      pair.anew();
    }
    if (random() % 50 == 0) {  // a second connection before the first one was used
      pair.anew();
    }
  }
  pair.run();
  EXPECT_THAT(pair.left.heard, ElementsAreArray(b));
  EXPECT_THAT(pair.right.heard, ElementsAreArray(a));
}

std::vector<std::byte> packet(PacketHead head, std::span<const std::byte> body, std::uint32_t length) {
  head = transport::tcp::make_head(head.kind, head.number, head.acknowledged, body);
  head.bytes = length;
  std::vector<std::byte> bytes(sizeof(head));
  std::memcpy(bytes.data(), &head, sizeof(head));
  // Gives the head a correct checksum, whatever it says.
  const auto right = transport::tcp::with_right_checksum(head);
  std::memcpy(bytes.data(), &right, sizeof(right));
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

// Each lie has correct checksums. Mutations tried: the length has no limit; the number is not checked; an
// acknowledgement of a packet that was never sent is believed.
TEST(Lanes, LiesBreakTheConnection) {
  struct Lie {
    const char* what;
    PacketHead head;
    std::uint32_t length;
  };
  const auto kind = PacketKind::message;
  for (const Lie& lie :
       {Lie{"the truth", {.kind = kind, .number = 1}, 4}, Lie{"too long", {.kind = kind, .number = 1}, 0xFFFFFFF0U},
        Lie{"the next one but one", {.kind = kind, .number = 2}, 4}, Lie{"number 0", {.kind = kind, .number = 0}, 4},
        Lie{"it has what was never sent", {.kind = kind, .number = 1, .acknowledged = 7}, 4},
        Lie{"a kind that is none", {.kind = static_cast<PacketKind>(99), .number = 1}, 4},
        Lie{"a second beginning", {.kind = PacketKind::resume}, 4}}) {
    auto [theirs, ours] = connected();
    Side side(std::move(ours), TcpLane::Role::accepts);
    const transport::tcp::Resume said{.secret = 5, .attempt = 1};
    const auto first = transport::tcp::make_packet(PacketKind::resume, 0, transport::tcp::bytes_of_body(said));
    EXPECT_TRUE(transport::tcp::write_until(theirs, first, Clock::now()));
    side.take();
    ASSERT_TRUE(side.lane.live());
    const auto body = std::as_bytes(std::span("body", 4));
    EXPECT_TRUE(transport::tcp::write_until(theirs, packet(lie.head, body, lie.length), Clock::now()));
    side.take();
    const bool truth = std::string(lie.what) == "the truth";
    EXPECT_EQ(side.lane.live(), truth) << lie.what;
    EXPECT_EQ(side.heard.size(), truth ? 1U : 0U) << lie.what;
  }
}

// Mutations tried: a stranger that does not know the secret takes the lane over; an older connection replaces a newer
// one.
TEST(Lanes, NobodyElseTakesALaneOver) {
  Pair pair;
  pair.run();
  const std::uint64_t secret = pair.left.lane.secret().value();
  const auto offer = [&](const transport::tcp::Resume& said, std::uint64_t acknowledged) {
    auto [theirs, ours] = connected();
    EXPECT_TRUE(transport::tcp::write_until(
        theirs, transport::tcp::make_packet(PacketKind::resume, acknowledged, transport::tcp::bytes_of_body(said)),
        Clock::now()));
    pair.right.lane.offer(std::move(ours));
    pair.right.change = TcpLane::Change::none;
    pair.right.take();
    EXPECT_FALSE(pair.right.lane.candidate().valid());
    return pair.right.change == TcpLane::Change::mended;
  };
  EXPECT_FALSE(offer({.secret = secret + 1, .attempt = 9}, 0));
  EXPECT_FALSE(offer({.secret = secret, .attempt = 1}, 0));
  EXPECT_FALSE(offer({.secret = secret, .attempt = 9}, 3)) << "nothing was sent";
  pair.left.say("still here");
  pair.run();
  EXPECT_THAT(pair.right.heard, ElementsAreArray({"still here"}));
  EXPECT_TRUE(offer({.secret = secret, .attempt = 9}, 0));
}

TEST(Lanes, WhatIsReceivedIsSaidThoughNothingIsSent) {
  Pair pair;
  pair.left.say("a");
  pair.run();
  EXPECT_TRUE(pair.right.lane.owes(Clock::now() + std::chrono::seconds(1)));
  pair.right.lane.acknowledge();
  EXPECT_FALSE(pair.right.lane.owes(Clock::now() + std::chrono::seconds(1)));
  pair.run();
  pair.wire->cut();
  pair.anew();
  pair.run();
  EXPECT_THAT(pair.right.heard, ElementsAreArray({"a"}));
  pair.left.say(std::string(1U << 17U, 'x'));
  pair.run();
  EXPECT_TRUE(pair.right.lane.owes(Clock::now())) << "it has received much";
}

TEST(Lanes, AFullLaneIsGivenUp) {
  Pair pair;
  const std::vector<std::byte> much(transport::tcp::kLongestPacket);
  std::size_t pushed = 0;
  while (pair.left.lane.push(PacketKind::message, much)) {
    pushed += much.size();
    ASSERT_LE(pushed, TcpLane::kMostKept);
  }
  EXPECT_GT(pushed, TcpLane::kMostKept - 2 * much.size());
  pair.left.lane.close();
  EXPECT_EQ(pair.left.lane.unsent(), 0U);
  pair.left.say("nothing more goes");
  EXPECT_FALSE(pair.left.lane.has_more());
}

}  // namespace
}  // namespace gradwire::test
