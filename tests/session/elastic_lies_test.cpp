// Tests that one process of a job sends messages that no correct process would send, each with a correct checksum, or
// that a connection that carries steps breaks between two processes. The others go on, and none allocates memory for a
// lie, hangs or trains a second model.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "elastic/world_agreement.hpp"
#include "gradwire/session.hpp"
#include "membership/membership_message.hpp"
#include "tests/support/forwarding_transport.hpp"

namespace gradwire::test {
namespace {

using membership::MembershipMessage;
using Send = std::function<void(Processes::Id to, wire::Bytes)>;

constexpr std::uint64_t kLieSteps = 40;
constexpr std::uint64_t kLieAt = 20;

struct End {
  std::uint64_t steps = 0;
  int world_size = 0;
  int wrong_sums = 0;
  std::optional<Error> error;
};

// Runs a rank of three whose gradients are ones; it calls `act` in step kLieAt.
End train(std::shared_ptr<Processes> processes, const std::string& elastic, const std::function<void()>& act) {
  End end;
  try {
    std::vector<float> gradient(1000);
    Session session(
        std::move(processes),
        Policy::parse("[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[elastic]\nsuspect = \"2s\"\n" + elastic));
    const auto id = session.add("g", view(gradient.data(), gradient.size()));
    for (bool acted = false; session.step() < kLieSteps;) {
      std::fill(gradient.begin(), gradient.end(), 1.0F);
      session.ready(id);
      if (session.step() == kLieAt && !std::exchange(acted, true)) {
        act();
      }
      const StepOutcome outcome = session.finish();
      end.wrong_sums += !outcome.repeat && std::abs(gradient[0] - 1.0F) > 0.01F ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    end.steps = session.step();
    end.world_size = session.world_size();
  } catch (const Error& error) {
    end.error = error;
  }
  return end;
}

std::vector<End> train_with(const std::string& elastic, const std::function<void(const Send&)>& lie) {
  auto processes = make_inproc_processes(3);
  std::vector<End> ends(3);
  std::vector<std::thread> threads;
  for (std::size_t who = 0; who < 3; ++who) {
    threads.emplace_back([&, who, own = std::exchange(processes[who], nullptr)]() mutable {
      ends[who] = train(own, elastic, [&, own] {
        if (who == 2) {
          lie([&](Processes::Id to, wire::Bytes body) { own->send(to, membership::seal(body)); });
        }
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ends;
}

wire::Bytes body_of(const MembershipMessage& message) {
  const wire::Bytes sealed = membership::encode(message);
  const auto body = membership::unseal(sealed);
  return {body.begin(), body.end()};
}

MembershipMessage says(MembershipMessage::Kind kind) {
  MembershipMessage message;
  message.kind = kind;
  message.from = 2;
  message.epoch = 1;
  return message;
}

MembershipMessage says_decided(membership::World world, std::uint64_t delivered) {
  MembershipMessage message = says(MembershipMessage::Kind::decided);
  message.decision = membership::Decision{std::move(world), delivered};
  return message;
}

void expect_that_it_is_left_out(const std::vector<End>& ends) {
  for (const std::size_t who : {0U, 1U}) {
    EXPECT_FALSE(ends[who].error) << ends[who].error->what();
    EXPECT_EQ(ends[who].steps, kLieSteps);
    EXPECT_EQ(ends[who].world_size, 2);
    EXPECT_EQ(ends[who].wrong_sums, 0);
  }
  ASSERT_TRUE(ends[2].error);
  EXPECT_EQ(ends[2].error->code(), ErrorCode::expelled) << ends[2].error->what();
}

void expect_that_all_go_on(const std::vector<End>& ends) {
  for (const End& end : ends) {
    EXPECT_FALSE(end.error) << end.error->what();
    EXPECT_EQ(end.steps, kLieSteps);
    EXPECT_EQ(end.world_size, 3);
    EXPECT_EQ(end.wrong_sums, 0);
  }
}

TEST(ElasticLies, WhoSaysWhatCannotBeIsLeftOut) {
  const auto to_both = [](const MembershipMessage& message) {
    return [message](const Send& send) {
      send(0, body_of(message));
      send(1, body_of(message));
    };
  };
  const auto to_first = [](const MembershipMessage& message) {
    return [message](const Send& send) { send(0, body_of(message)); };
  };
  MembershipMessage beat = says(MembershipMessage::Kind::beat);
  beat.step = 1ULL << 63;
  expect_that_it_is_left_out(train_with("", to_first(beat)));
  beat.step = kLieAt + 100;
  expect_that_it_is_left_out(train_with("", to_first(beat)));
  MembershipMessage round = says(MembershipMessage::Kind::prepare);
  round.ballot = {~0ULL, 2};
  expect_that_it_is_left_out(train_with("", to_both(round)));
  MembershipMessage as_other = says(MembershipMessage::Kind::suspect);
  as_other.from = 1;
  as_other.dead = {{2, 1, 0}};
  expect_that_it_is_left_out(train_with("", to_first(as_other)));
  MembershipMessage unknown = says_decided({2, {0, 99}}, kLieAt);
  expect_that_it_is_left_out(train_with("", to_first(unknown)));
  unknown.from = 77;
  expect_that_it_is_left_out(train_with("", to_first(unknown)));
  expect_that_it_is_left_out(train_with("", to_both(says_decided({2, {}}, kLieAt))));
  expect_that_it_is_left_out(train_with("", to_both(says_decided({UINT32_MAX, {0, 1, 2}}, kLieAt))));
  expect_that_it_is_left_out(train_with("", to_both(says_decided({2, {0, 1}}, ~0ULL))));
}

TEST(ElasticLies, WhoSaysNothingOfSenseIsLeftOut) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}}) {
    expect_that_it_is_left_out(train_with("", [&](const Send& send) {
      for (const Processes::Id to : {0U, 1U}) {
        send(to, wire::Bytes(size, std::byte{0x55}));
      }
    }));
  }
  for (const unsigned mark : {0xC1U, 0xC2U, 0xC3U, 0xC4U}) {  // marks of messages that are not part of the agreement
    expect_that_it_is_left_out(train_with("", [&](const Send& send) {
      for (const Processes::Id to : {0U, 1U}) {
        wire::Bytes body(1 << 20, std::byte{'x'});
        body[0] = static_cast<std::byte>(mark);
        send(to, std::move(body));
      }
    }));
  }
}

// A message that is damaged on its way costs a step, but no process.
TEST(ElasticLies, WhoseMessageIsDamagedStays) {
  auto processes = make_inproc_processes(3);
  std::vector<End> ends(3);
  std::vector<std::thread> threads;
  for (std::size_t who = 0; who < 3; ++who) {
    threads.emplace_back([&, who] {
      ends[who] = train(processes[who], "", [&] {
        for (const Processes::Id to : {0U, 1U}) {
          processes[2]->send(to, wire::Bytes(100, std::byte{0x55}));
        }
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  expect_that_all_go_on(ends);
}

// A live process is not left out because another one says that it has ended.
TEST(ElasticLies, OneThatLivesStays) {
  MembershipMessage dead = says(MembershipMessage::Kind::suspect);
  dead.dead = {{1, 1, 0}};
  expect_that_all_go_on(train_with("", [&](const Send& send) { send(0, body_of(dead)); }));
}

// The lie announces pieces of a copy that would take 2^62 bytes.
TEST(ElasticLies, ACopyTakesNoMoreThanResidualsCan) {
  const auto lie = [](const Send& send) {
    constexpr std::size_t kPiece = 1 << 19;
    for (std::uint64_t i = 0; i < 20; ++i) {
      for (const Processes::Id to : {0U, 1U}) {
        wire::Bytes body{std::byte{0xC0}};
        wire::put_number(body, std::uint32_t{1});
        wire::put_number(body, std::uint64_t{1});
        wire::put_number(body, std::uint64_t{1} << 62);
        wire::put_number(body, i * kPiece);
        body.resize(body.size() + kPiece);
        send(to, std::move(body));
      }
    }
  };
  expect_that_all_go_on(train_with("", lie));  // no rank keeps copies
  expect_that_it_is_left_out(train_with("replicate = \"1 step\"\n", lie));
}

// A transport that breaks between ranks 0 and 1 once `broken` is set, as when a connection is reset: each end sees an
// error that names the other.
class Breaking final : public ForwardingTransport {
 public:
  Breaking(std::shared_ptr<Transport> inner, std::shared_ptr<std::atomic<bool>> broken)
      : ForwardingTransport(std::move(inner)), broken_(std::move(broken)) {}
  [[nodiscard]] TransportCapabilities capabilities() const override { return {}; }
  bool progress(std::chrono::microseconds wait) override {
    if (*broken_ && rank() < 2) {
      failed_ = 1 - rank();
      inner().abort(Error(ErrorCode::transport, "rank " + std::to_string(1 - rank()) + " is gone", ErrorCause::world));
    }
    return inner().progress(std::min(wait, std::chrono::microseconds(1000)));
  }
  [[nodiscard]] std::optional<int> failed_peer() const noexcept override {
    const int peer = failed_;
    return peer >= 0 ? std::optional(peer) : std::nullopt;
  }

 private:
  std::shared_ptr<std::atomic<bool>> broken_;
  std::atomic<int> failed_ = -1;
};

// Processes whose first worlds break.
class BreakingProcesses final : public Processes {
 public:
  BreakingProcesses(std::shared_ptr<Processes> inner, std::vector<std::shared_ptr<std::atomic<bool>>> worlds)
      : inner_(std::move(inner)), worlds_(std::move(worlds)) {}
  [[nodiscard]] Id self() const noexcept override { return inner_->self(); }
  [[nodiscard]] std::vector<Id> all() const override { return inner_->all(); }
  [[nodiscard]] std::string describe(Id who) const override { return inner_->describe(who); }
  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override { inner_->send(to, message, lane); }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override { return inner_->unsent(to, lane); }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override { return inner_->hear(wait); }
  void wake() noexcept override { inner_->wake(); }
  void end() noexcept override { inner_->end(); }
  void enter(std::uint32_t epoch) noexcept override { inner_->enter(epoch); }
  void count(std::uint64_t step) noexcept override { inner_->count(step); }
  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override {
    auto transport = inner_->connect(members, epoch, timeout);
    return epoch <= worlds_.size() ? std::make_shared<Breaking>(std::move(transport), worlds_[epoch - 1])
                                   : std::move(transport);
  }

 private:
  std::shared_ptr<Processes> inner_;
  std::vector<std::shared_ptr<std::atomic<bool>>> worlds_;
};

std::vector<End> train_while_worlds_break(std::size_t worlds) {
  auto processes = make_inproc_processes(3);
  std::vector<std::shared_ptr<std::atomic<bool>>> broken;
  for (std::size_t i = 0; i < worlds; ++i) {
    broken.push_back(std::make_shared<std::atomic<bool>>(i > 0));
  }
  std::vector<End> ends(3);
  std::vector<std::thread> threads;
  for (std::size_t who = 0; who < 3; ++who) {
    threads.emplace_back([&, who, own = std::exchange(processes[who], nullptr)]() mutable {
      ends[who] = train(std::make_shared<BreakingProcesses>(std::move(own), broken), "", [&] { *broken[0] = true; });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ends;
}

TEST(ElasticResets, AConnectionOfStepsThatBreaksCostsAStep) { expect_that_all_go_on(train_while_worlds_break(1)); }

// If the link breaks again, one of its two ends leaves, and never the third process.
TEST(ElasticResets, OfTwoThatCannotReachEachOtherOneGoes) {
  const std::vector<End> ends = train_while_worlds_break(2);
  for (const std::size_t who : {0U, 2U}) {
    EXPECT_FALSE(ends[who].error) << ends[who].error->what();
    EXPECT_EQ(ends[who].steps, kLieSteps);
    EXPECT_EQ(ends[who].world_size, 2);
  }
  ASSERT_TRUE(ends[1].error);
  EXPECT_EQ(ends[1].error->code(), ErrorCode::expelled) << ends[1].error->what();
}

// A process that hears nothing, as if all its links were down.
class Deaf final : public Processes {
 public:
  explicit Deaf(std::shared_ptr<Processes> inner) : inner_(std::move(inner)) {}
  std::atomic<bool> deaf = false;
  std::atomic<std::uint64_t> counted = 0;
  std::atomic<std::uint32_t> entered = 0;
  [[nodiscard]] Id self() const noexcept override { return inner_->self(); }
  [[nodiscard]] std::vector<Id> all() const override { return inner_->all(); }
  [[nodiscard]] std::string describe(Id who) const override { return inner_->describe(who); }
  using Processes::send;
  void send(Id to, std::span<const std::byte> message, Lane lane) noexcept override {
    if (!deaf) {
      inner_->send(to, message, lane);
    }
  }
  [[nodiscard]] std::uint64_t unsent(Id to, Lane lane) const noexcept override { return inner_->unsent(to, lane); }
  [[nodiscard]] std::vector<Heard> hear(std::chrono::milliseconds wait) override {
    std::vector<Heard> heard = inner_->hear(wait);
    return deaf ? std::vector<Heard>() : heard;
  }
  void wake() noexcept override { inner_->wake(); }
  void end() noexcept override { inner_->end(); }
  void enter(std::uint32_t epoch) noexcept override { entered = epoch; }
  void count(std::uint64_t step) noexcept override { counted = step; }
  [[nodiscard]] std::shared_ptr<Transport> connect(std::span<const Id> members, std::uint32_t epoch,
                                                   std::chrono::milliseconds timeout) override {
    return inner_->connect(members, epoch, timeout);
  }

 private:
  std::shared_ptr<Processes> inner_;
};

class ElasticConfirm : public ::testing::Test {
 protected:
  ElasticConfirm() {
    const auto inproc = make_inproc_processes(2);
    const membership::MembershipSettings settings{
        .beat = std::chrono::milliseconds(20), .silent_after = std::chrono::milliseconds(500), .start = {0, 1}};
    for (std::size_t who = 0; who < 2; ++who) {
      processes_[who] = std::make_shared<Deaf>(inproc[who]);
      members_[who] = std::make_unique<session::WorldAgreement>(processes_[who], settings, copies_);
    }
    std::thread other([&] { EXPECT_TRUE(members_[1]->commit(1, std::chrono::seconds(30))); });
    EXPECT_TRUE(members_[0]->commit(1, std::chrono::seconds(30)));
    other.join();
  }
  session::KeptCopies copies_;
  std::shared_ptr<Deaf> processes_[2];
  std::unique_ptr<session::WorldAgreement> members_[2];
};

// The others must learn about the step from the end of this process.
TEST_F(ElasticConfirm, ItReturnsOnceAQuorumHasSaidSo) {
  EXPECT_EQ(processes_[1]->counted, 0U);
  members_[1]->confirm(std::chrono::seconds(30));
  EXPECT_EQ(processes_[1]->counted, 1U);
  EXPECT_EQ(processes_[1]->entered, 1U);
}

// The half with the lowest rank goes on; the other half has nobody to ask.
TEST_F(ElasticConfirm, WithoutAQuorumItSaysWhoDidNotAnswer) {
  processes_[1]->deaf = true;
  members_[0]->confirm(std::chrono::seconds(30));
  const auto began = std::chrono::steady_clock::now();
  try {
    members_[1]->confirm(std::chrono::seconds(300));
    FAIL() << "0 has not answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 0 of the start"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60));
}

}  // namespace
}  // namespace gradwire::test
