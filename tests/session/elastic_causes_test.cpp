// Tests that the cause of an error decides what happens to its rank: if the error reports the end of the world, the
// rank makes the step again in the next world; otherwise it leaves. The error's code does not matter.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/processes.hpp"
#include "gradwire/session.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/forwarding_transport.hpp"

namespace gradwire::test {
namespace {

constexpr std::uint64_t kFailsAt = 3;
constexpr std::uint64_t kCauseSteps = 10;

// Throws `error` once, from the step on in which `fails` is set. In a pair, `first` strikes first, and throws only once
// the other one is about to: otherwise an abort by the first could reach the other one before it throws.
struct Failure {
  explicit Failure(Error what) : error(std::move(what)) {}

  Error error;
  std::atomic<bool> fails{false};
  std::atomic<bool> struck{false};
  Failure* other = nullptr;
  bool first = false;

  void strike() {
    if (!fails || other == nullptr || (!first && !other->struck) || struck.exchange(true)) {
      return;
    }
    while (!other->struck) {
      std::this_thread::yield();
    }
    throw Error(error);
  }
};

class FailingTransport final : public ForwardingTransport {
 public:
  FailingTransport(std::shared_ptr<Transport> inner, std::shared_ptr<Failure> failure)
      : ForwardingTransport(std::move(inner)), failure_(std::move(failure)) {}
  [[nodiscard]] TransportCapabilities capabilities() const override { return {}; }
  bool progress(std::chrono::microseconds wait) override {
    failure_->strike();
    return inner().progress(std::min(wait, std::chrono::microseconds(1000)));
  }

 private:
  std::shared_ptr<Failure> failure_;
};

class FailingProcesses final : public Processes {
 public:
  FailingProcesses(std::shared_ptr<Processes> inner, std::shared_ptr<Failure> failure)
      : inner_(std::move(inner)), failure_(std::move(failure)) {}
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
    return std::make_shared<FailingTransport>(inner_->connect(members, epoch, timeout), failure_);
  }

 private:
  std::shared_ptr<Processes> inner_;
  std::shared_ptr<Failure> failure_;
};

struct RankEnd {
  std::uint64_t steps = 0;
  int repeated = 0;
  std::optional<Error> error = {};
};

RankEnd train_one(std::shared_ptr<Processes> processes, const std::shared_ptr<Failure>& failure) {
  RankEnd end;
  try {
    std::vector<float> gradient(1000);
    Session session(std::make_shared<FailingProcesses>(std::move(processes), failure),
                    Policy::parse("[[rule]]\nmatch = \"*\"\ncodec = \"int8\"\n[elastic]\nsuspect = \"2s\"\n"));
    const auto id = session.add("g", view(gradient.data(), gradient.size()));
    while (session.step() < kCauseSteps) {
      failure->fails = session.step() >= kFailsAt;
      std::ranges::fill(gradient, 1.0F);
      session.ready(id);
      end.repeated += session.finish().repeat ? 1 : 0;
    }
    end.steps = session.step();
  } catch (const Error& error) {
    end.error = error;
  }
  return end;
}

// Rank 2 meets `error`; rank 0 then leaves for a reason of its own, so that there is a next world for ranks that wait.
std::vector<RankEnd> train_while_it_fails(const Error& error) {
  auto processes = make_inproc_processes(3);
  std::vector<std::shared_ptr<Failure>> failures;
  for (const Error& one : {Error(ErrorCode::internal, "rank 0 is to go"), Error(ErrorCode::internal, "never"), error}) {
    failures.push_back(std::make_shared<Failure>(one));
  }
  failures[0]->other = failures[2].get();
  failures[2]->other = failures[0].get();
  failures[2]->first = true;
  std::vector<RankEnd> ends(3);
  std::vector<std::thread> threads;
  for (std::size_t who = 0; who < 3; ++who) {
    threads.emplace_back([&, who, own = std::exchange(processes[who], nullptr)]() mutable {
      ends[who] = train_one(std::move(own), failures[who]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ends;
}

// Mutations tried: the error's code decides, as it did earlier; the engine or its executor drops the cause.
TEST(ElasticCauses, OnlyAnErrorOfTheWorldMakesAStepAgain) {
  for (const ErrorCode code : {ErrorCode::aborted, ErrorCode::transport, ErrorCode::timeout, ErrorCode::mismatch}) {
    for (const ErrorCause cause : {ErrorCause::rank, ErrorCause::world}) {
      SCOPED_TRACE(std::string(to_string(code)) + (cause == ErrorCause::world ? " of the world" : " of the rank"));
      const std::vector<RankEnd> ends = train_while_it_fails(Error(code, "it fails", cause));
      ASSERT_TRUE(ends[0].error);
      EXPECT_FALSE(ends[1].error) << ends[1].error->what();
      EXPECT_EQ(ends[1].steps, kCauseSteps);
      EXPECT_GE(ends[1].repeated, 1);
      if (cause == ErrorCause::world) {
        EXPECT_FALSE(ends[2].error) << ends[2].error->what();
        EXPECT_EQ(ends[2].steps, kCauseSteps);
        EXPECT_EQ(ends[2].repeated, 1);
      } else {
        ASSERT_TRUE(ends[2].error);
        EXPECT_EQ(ends[2].error->code(), code);
        EXPECT_STREQ(ends[2].error->what(), "it fails");
        EXPECT_EQ(ends[2].repeated, 0);
      }
    }
  }
}

// Mutation tried: calls of a session that has left the job wait for finish() to report that.
TEST(ElasticCauses, AfterAReportedErrorEveryCallSaysThatTheSessionGaveUp) {
  for (const bool aborts : {false, true}) {
    SCOPED_TRACE(aborts ? "abort()" : "an error of finish()");
    std::vector<float> gradient(1000);
    Session session(std::move(make_inproc_processes(1).front()), Policy::parse("[elastic]\n"));
    const auto id = session.add("g", view(gradient.data(), gradient.size()));
    const Ticket ticket = session.ready(id);
    session.finish();
    if (aborts) {
      session.abort("had enough");
    } else {
      EXPECT_EQ(error_of([&] { session.finish(); }).code(), ErrorCode::invalid_argument);
    }
    const std::vector<std::function<void()>> calls{
        [&] { session.ready(id); }, [&] { session.wait(ticket); }, [&] { static_cast<void>(session.done(ticket)); },
        [&] { session.finish(); }, [&] { session.broadcast(view(gradient.data(), 1)); }};
    for (const auto& call : calls) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_NE(
          std::string(error.what()).find(aborts ? "had enough" : "gave up earlier: finish: 1 tensor(s) not ready"),
          std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace gradwire::test
