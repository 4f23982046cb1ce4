// A part that no file of the product knows: it is made, driven and explained by the table that the session is given.
#include "session/parts/part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "model.hpp"
#include "session/host/bucket_runner.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using session::ComparedPart;
using session::Part;
using session::PartInputs;
using session::PartTable;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class Counter final : public Part {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "counter"; }
  void after_step(const StepOutcome& outcome) override {
    EXPECT_EQ(outcome.step, steps_.load());
    ++steps_;
  }
  [[nodiscard]] std::string explain() const override { return "counted steps: " + std::to_string(steps_) + "\n"; }

 private:
  std::atomic<std::uint64_t> steps_ = 0;
};

// Every fourth step it compares what it was given; ranks that differ are an error of all.
class Comparer final : public Part, public ComparedPart {
 public:
  explicit Comparer(double value) : value_(value) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "comparer"; }
  [[nodiscard]] ComparedPart* compared() noexcept override { return this; }
  [[nodiscard]] bool due(std::uint64_t step) const override { return step % 4 == 3; }
  void append(std::vector<double>& numbers) override { numbers.push_back(value_); }
  void take(const Compared& compared) override {
    ++taken_;
    for (const auto& rank : compared.ranks) {
      if (rank[0] != compared.ranks[0][0]) {
        throw Error(ErrorCode::mismatch, "compared in step " + std::to_string(compared.step));
      }
    }
  }
  [[nodiscard]] std::string explain() const override { return "comparisons: " + std::to_string(taken_) + "\n"; }

 private:
  double value_;
  int taken_ = 0;
};

Session make(const std::shared_ptr<Transport>& transport, PartTable parts) {
  return session::make_session(std::make_unique<session::BucketRunner>(transport, SessionOptions{}),
                               Policy::parse("[defaults]\ncodec = \"int8\"\n"), {}, std::move(parts));
}

void step(Session& session, std::vector<Gradient>& gradients, std::uint64_t number) {
  fill(gradients, session.rank(), number);
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

TEST(Parts, APartOfTheCallerCountsStepsAndExplains) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session = make(transport, {[](const PartInputs& inputs) {
                             EXPECT_FALSE(inputs.plan.buckets.empty());
                             return std::make_unique<Counter>();
                           }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 5; ++s) {
      step(session, gradients, s);
    }
    EXPECT_THAT(session.explain(), EndsWith("counted steps: 5\n"));
  });
}

TEST(Parts, ThoseThatComparePartakeInTheGatherOfTheirSteps) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session = make(transport, {[](const PartInputs&) { return std::make_unique<Counter>(); },
                                       [](const PartInputs&) { return std::make_unique<Comparer>(1); }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 9; ++s) {
      step(session, gradients, s);
    }
    EXPECT_THAT(session.explain(), EndsWith("counted steps: 9\ncomparisons: 2\n"));
  });
}

TEST(Parts, WhatAPartThrowsEndsTheStepOnEveryRank) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session =
        make(transport, {[&](const PartInputs&) { return std::make_unique<Comparer>(transport->rank()); }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 9; ++s) {
      step(session, gradients, s);
    }
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(
        try { std::rethrow_exception(error); } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr("compared in step 3"));
          throw;
        },
        Error);
  }
}

// A part that communicates on some ranks alone would hang: ranks tell each other which parts they have.
TEST(Parts, RanksWithOtherPartsAreToldWhichOnes) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    PartTable parts{[](const PartInputs&) { return std::make_unique<Counter>(); }};
    if (transport->rank() == 1) {
      parts.insert(parts.begin(), [](const PartInputs&) { return std::make_unique<Comparer>(1); });
    }
    Session session = make(transport, std::move(parts));
    add_all(session, gradients);
    step(session, gradients, 0);
  });
  bool mismatch = false;  // the first rank to see it ends the session of the others
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      mismatch |= e.code() == ErrorCode::mismatch;
      EXPECT_THAT(e.what(), HasSubstr("parts: rank 0 has counter, rank 1 has comparer, counter"));
    }
  }
  EXPECT_TRUE(mismatch);
}

TEST(Parts, AMakerThatThrowsIsAskedAgainWithAPlanMadeAnew) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    int asked = 0;
    Session session = make(transport, {[](const PartInputs&) { return std::make_unique<Comparer>(1); },
                                       [&](const PartInputs&) -> std::unique_ptr<Part> {
                                         if (++asked == 1) {
                                           throw Error(ErrorCode::unsupported, "not yet");
                                         }
                                         return std::make_unique<Counter>();
                                       }});
    add_all(session, gradients);
    EXPECT_THROW(session.explain(), Error);
    for (std::uint64_t s = 0; s < 5; ++s) {
      step(session, gradients, s);
    }
    EXPECT_EQ(asked, 2);
    EXPECT_THAT(session.explain(), EndsWith("comparisons: 1\ncounted steps: 5\n"));
  });
}

TEST(Parts, AMakerThatReturnsNullMakesNoPart) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session plain = make(transport, {[](const PartInputs&) { return std::unique_ptr<Part>(); }});
    add_all(plain, gradients);
    step(plain, gradients, 0);
    EXPECT_THAT(plain.explain(), ::testing::Not(HasSubstr("counted")));
  });
}

}  // namespace
}  // namespace gradwire::test
