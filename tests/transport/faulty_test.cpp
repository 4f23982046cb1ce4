// Tests that each injected fault does what its name says, once, and nothing else.
#include "tests/support/faulty_transport.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/support/ranks.hpp"
#include "tests/transport/exchange.hpp"

namespace gradwire::test {
namespace {

using std::chrono::milliseconds;
using transport::Fault;

/// Rank 0 sends one byte at a time to rank 1 under tag 4; one thread plays both.
class Faulty : public ::testing::Test {
 protected:
  void make(const std::vector<Fault>& faults) {
    world_ = make_inproc_world(2);
    for (auto& endpoint : world_) {
      endpoint = transport::make_faulty(endpoint, faults);
    }
  }
  ~Faulty() override {
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      world_[i % 2]->cancel(operations_[i]);
    }
  }
  /// Sends values 0, 1, ...; their operations have even indexes.
  void send(int count) {
    for (int i = 0; i < count; ++i) {
      operations_.emplace_back();
      out_.push_back(static_cast<std::byte>(i));
      world_[0]->post_send(operations_.back(), 1, 4, std::span(&out_.back(), 1));
      operations_.emplace_back();
    }
    world_[0]->progress(kNow);
  }
  /// Returns the values that have arrived.
  std::vector<int> receive_all() {
    std::vector<int> values;
    for (;;) {
      std::byte value{};
      Operation operation;
      world_[1]->post_receive(operation, 0, 4, std::span(&value, 1));
      world_[1]->progress(kNow);
      if (!operation.done()) {
        world_[1]->cancel(operation);
        return values;
      }
      values.push_back(static_cast<int>(value));
    }
  }
  [[nodiscard]] bool all_sent() const {
    for (std::size_t i = 0; i < operations_.size(); i += 2) {
      if (!operations_[i].done()) {
        return false;
      }
    }
    return true;
  }

  std::vector<std::shared_ptr<Transport>> world_;
  std::deque<Operation> operations_;
  std::deque<std::byte> out_;
};

using ::testing::ElementsAre;

TEST_F(Faulty, DropLosesOneMessageSilently) {
  make({{.kind = Fault::Kind::drop, .nth = 1}});
  send(4);
  EXPECT_TRUE(all_sent());
  EXPECT_THAT(receive_all(), ElementsAre(0, 2, 3));
}

TEST_F(Faulty, CorruptInvertsOneByteAndLeavesTheSendersAlone) {
  make({{.kind = Fault::Kind::corrupt, .nth = 2, .offset = 5}});
  send(4);
  EXPECT_TRUE(all_sent());
  EXPECT_THAT(receive_all(), ElementsAre(0, 1, 2 ^ 0xff, 3));
  EXPECT_EQ(out_[2], std::byte{2});
}

TEST_F(Faulty, DuplicateSendsTwice) {
  make({{.kind = Fault::Kind::duplicate, .nth = 1}});
  send(3);
  EXPECT_TRUE(all_sent());
  EXPECT_THAT(receive_all(), ElementsAre(0, 1, 1, 2));
}

TEST_F(Faulty, DelayHoldsBackWhatFollows) {
  make({{.kind = Fault::Kind::delay, .nth = 1, .delay = std::chrono::milliseconds(20)}});
  const auto start = std::chrono::steady_clock::now();
  send(3);
  while (!all_sent()) {
    world_[0]->progress(milliseconds(1));
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(20));
  EXPECT_THAT(receive_all(), ElementsAre(0, 1, 2));
}

TEST_F(Faulty, FailThrowsOnce) {
  make({{.kind = Fault::Kind::fail, .rank = 0, .nth = 1, .peer = 1, .tag = 4}});
  send(1);
  try {
    send(1);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 cannot send to rank 1, tag 4"));
  }
  EXPECT_FALSE(operations_.back().pending());
  operations_.emplace_back();  // keeps sends even
  send(1);
  EXPECT_THAT(receive_all(), ElementsAre(0, 0));
}

TEST_F(Faulty, OnlyWhatMatchesCounts) {
  make({{.kind = Fault::Kind::drop, .rank = 1},
        {.kind = Fault::Kind::drop, .tag = 5},
        {.kind = Fault::Kind::drop, .peer = 0}});
  send(3);
  EXPECT_THAT(receive_all(), ElementsAre(0, 1, 2));
}

TEST_F(Faulty, KilledEndpointIsSilent) {
  make({{.kind = Fault::Kind::kill, .rank = 0, .nth = 1}});
  send(1);
  EXPECT_TRUE(all_sent());
  send(2);
  EXPECT_FALSE(world_[0]->progress(milliseconds(2)));
  EXPECT_FALSE(operations_[2].done());
  EXPECT_THAT(receive_all(), ElementsAre(0));
  world_[0]->abort(Error(ErrorCode::internal, "nobody hears this"));
  EXPECT_NO_THROW(world_[1]->progress(kNow));
  // Rank 1 hears other ranks, so that a test's thread can end.
  world_[1]->abort(Error(ErrorCode::timeout, "rank 0 is silent", ErrorCause::world));
  EXPECT_THROW(world_[0]->progress(milliseconds(100)), Error);
}

TEST_F(Faulty, HasNoNativeAllReduce) {
  make({});
  EXPECT_EQ(world_[0]->name(), "faulty(inproc)");
  EXPECT_FALSE(world_[0]->capabilities().native_all_reduce_f32);
  EXPECT_THROW((void)transport::make_faulty(nullptr, {}), Error);
}

}  // namespace
}  // namespace gradwire::test
