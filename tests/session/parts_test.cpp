// Tests a part that the product does not know: the table given to the session makes, drives and explains it.
#include "session/part/part.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <tuple>

#include "model.hpp"
#include "session/host/bucket_runner.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

using session::ComparedPart;
using session::Part;
using session::PartInputs;
using session::PartMaker;
using session::PartTable;
using session::StepListener;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class Counter final : public Part, public StepListener {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return "counter"; }
  [[nodiscard]] StepListener* listener() noexcept override { return this; }
  void step_over(const StepOutcome& outcome, std::uint64_t /*begin*/,
                 std::chrono::steady_clock::time_point /*end*/) override {
    EXPECT_EQ(outcome.step, steps_.load());
    ++steps_;
  }
  [[nodiscard]] std::string explain() const override { return "counted steps: " + std::to_string(steps_) + "\n"; }

 private:
  std::atomic<std::uint64_t> steps_ = 0;
};

// Compares its value between ranks every fourth step; a difference is an error on all ranks.
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

// Announces its line to the other ranks, and compares nothing until it has theirs.
class Speaker final : public Part, public ComparedPart {
 public:
  Speaker(std::string_view name, int rank) : name_(name), line_(std::string(name) + " of " + std::to_string(rank)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] std::string says() const override { return line_; }
  void agreed(const session::Agreement& agreement) override {
    EXPECT_TRUE(told_.empty()) << "once";
    told_ = agreement.told;
  }
  [[nodiscard]] ComparedPart* compared() noexcept override { return told_.empty() ? nullptr : this; }
  [[nodiscard]] bool due(std::uint64_t step) const override { return step == 1; }
  void append(std::vector<double>& numbers) override { numbers.push_back(1); }
  void take(const Compared& /*compared*/) override { ++taken_; }
  [[nodiscard]] std::string explain() const override {
    std::string text;
    for (const std::string& line : told_) {
      text += line + "; ";
    }
    return text + "compared " + std::to_string(taken_) + "\n";
  }

 private:
  std::string_view name_;
  std::string line_;
  std::vector<std::string> told_;
  int taken_ = 0;
};

// Reads the results of every third step.
class Reader final : public Part, private session::ResultReader {
 public:
  explicit Reader(std::vector<std::pair<std::uint64_t, std::size_t>>& read) : read_(read) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "reader"; }
  [[nodiscard]] ResultReader* result_reader() noexcept override { return this; }

 private:
  [[nodiscard]] bool reads(std::uint64_t step) const override { return step % 3 == 2; }
  void read(std::span<const View> results, std::uint64_t step) override { read_.emplace_back(step, results.size()); }

  std::vector<std::pair<std::uint64_t, std::size_t>>& read_;
};

Session make(const std::shared_ptr<Transport>& transport, PartTable parts) {
  return session::make_session(std::make_unique<session::BucketRunner>(transport, SessionOptions{}),
                               Policy::parse("[defaults]\ncodec = \"int8\"\n"), {}, std::move(parts));
}

void take_step(Session& session, std::vector<Gradient>& gradients, std::uint64_t number) {
  fill(gradients, session.rank(), number);
  for (const Gradient& gradient : gradients) {
    session.ready(gradient.id);
  }
  session.finish();
}

TEST(PartSet, APartOfTheCallerCountsStepsAndExplains) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session = make(transport, {[](const PartInputs& inputs) {
                             EXPECT_FALSE(inputs.plan->buckets.empty());
                             return std::make_unique<Counter>();
                           }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 5; ++s) {
      take_step(session, gradients, s);
    }
    EXPECT_THAT(session.explain(), EndsWith("counted steps: 5\n"));
  });
}

TEST(PartSet, ThoseThatComparePartakeInTheGatherOfTheirSteps) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session = make(transport, {[](const PartInputs&) { return std::make_unique<Counter>(); },
                                       [](const PartInputs&) { return std::make_unique<Comparer>(1); }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 9; ++s) {
      take_step(session, gradients, s);
    }
    EXPECT_THAT(session.explain(), EndsWith("counted steps: 9\ncomparisons: 2\n"));
  });
}

// Mutation tried: results are read after every step.
TEST(PartSet, OneThatReadsResultsGetsThoseOfItsSteps) {
  auto gradients = make_gradients();
  std::vector<std::pair<std::uint64_t, std::size_t>> read;
  Session session =
      make(make_inproc_world(1).front(), {[&](const PartInputs&) { return std::make_unique<Reader>(read); }});
  add_all(session, gradients);
  for (std::uint64_t s = 0; s < 7; ++s) {
    take_step(session, gradients, s);
  }
  EXPECT_THAT(read, ElementsAre(std::pair(2U, gradients.size()), std::pair(5U, gradients.size())));
}

TEST(PartSet, WhatAPartThrowsEndsTheStepOnEveryRank) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session session =
        make(transport, {[&](const PartInputs&) { return std::make_unique<Comparer>(transport->rank()); }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 9; ++s) {
      take_step(session, gradients, s);
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

// Begins to take rows of files, and never receives them.
class RowReader final : public Part, private session::RowLoader, private table::RowSink {
 public:
  explicit RowReader(bool& has_rows) : has_rows_(has_rows) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "row reader"; }
  [[nodiscard]] RowLoader* row_loader() noexcept override { return this; }

 private:
  [[nodiscard]] table::RowSink& begin_rows() override {
    has_rows_ = true;
    return *this;
  }
  void forget_rows() override { has_rows_ = false; }
  [[nodiscard]] bool wants(std::size_t /*number*/, const table::SavedTable& /*table*/) override { return true; }
  [[nodiscard]] bool take(std::size_t /*number*/, const table::Shard::Row& /*row*/) override { return true; }

  bool& has_rows_;
};

// Rows of a table may take most of the memory. Mutation tried: load() keeps the rows that it has read.
TEST(PartSet, RowsOfALoadThatFailsAreFreed) {
  bool has_rows = false;
  PartTable parts = session::standard_parts();
  parts.emplace_back([&](const PartInputs&) { return std::make_unique<RowReader>(has_rows); },
                     session::PartMaker::When::with_session);
  auto gradients = make_gradients();
  Session session = make(make_inproc_world(1).front(), std::move(parts));
  add_all(session, gradients);
  EXPECT_THROW(session.load("no such directory"), Error);
  EXPECT_FALSE(has_rows);
}

// A part that communicates on some ranks only would hang: ranks tell each other which parts they have.
TEST(PartSet, RanksWithOtherPartsAreToldWhichOnes) {
  const auto errors = run_ranks_catching(make_inproc_world(2), [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    PartTable parts{[](const PartInputs&) { return std::make_unique<Counter>(); }};
    if (transport->rank() == 1) {
      parts.insert(parts.begin(), [](const PartInputs&) { return std::make_unique<Comparer>(1); });
    }
    Session session = make(transport, std::move(parts));
    add_all(session, gradients);
    take_step(session, gradients, 0);
  });
  bool mismatch = false;  // the first rank that sees it ends the session of the others
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      mismatch |= e.code() == ErrorCode::mismatch;
      EXPECT_THAT(e.what(), HasSubstr("parts: rank 1 alone has comparer;"));
    }
  }
  EXPECT_TRUE(mismatch);
}

TEST(PartSet, AMakerThatThrowsIsAskedAgainWithAPlanMadeAnew) {
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
    EXPECT_THROW(std::ignore = session.explain(), Error);
    for (std::uint64_t s = 0; s < 5; ++s) {
      take_step(session, gradients, s);
    }
    EXPECT_EQ(asked, 2);
    EXPECT_THAT(session.explain(), EndsWith("comparisons: 1\ncounted steps: 5\n"));
  });
}

TEST(PartSet, EachOfThoseThatSpeakIsToldWhatItsLikesSayOnAllRanks) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    const int rank = transport->rank();
    Session session = make(transport, {[=](const PartInputs&) { return std::make_unique<Speaker>("this", rank); },
                                       [](const PartInputs&) { return std::make_unique<Counter>(); },
                                       [=](const PartInputs&) { return std::make_unique<Speaker>("that", rank); }});
    add_all(session, gradients);
    for (std::uint64_t s = 0; s < 3; ++s) {
      take_step(session, gradients, s);
    }
    EXPECT_THAT(session.explain(), EndsWith("this of 0; this of 1; compared 1\ncounted steps: 3\n"
                                            "that of 0; that of 1; compared 1\n"));
  });
}

TEST(PartSet, ThoseThatAreMadeWithTheSessionSeeItsEnd) {
  struct Witness final : Part {
    explicit Witness(std::vector<std::string>& told) : log(told) { log.emplace_back("made"); }
    [[nodiscard]] std::string_view name() const noexcept override { return "witness"; }
    void session_ends() noexcept override { log.emplace_back("ends"); }
    ~Witness() override { log.emplace_back("gone"); }
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;
    std::vector<std::string>& log;
  };
  std::vector<std::string> saw;
  {
    Session session = make(make_inproc_world(1)[0], {{[&](const PartInputs& inputs) {
                                                        EXPECT_FALSE(inputs.plan);
                                                        return std::make_unique<Witness>(saw);
                                                      },
                                                      PartMaker::When::with_session}});
    EXPECT_THAT(saw, ElementsAre("made"));
  }
  EXPECT_THAT(saw, ElementsAre("made", "ends", "gone"));
}

TEST(PartSet, ThoseThatChangeWithAStepPrepareItOnAllRanksBeforeAnyCommitsIt) {
  struct Participant final : Part, session::StepParticipant {
    Participant(exchange::Peers& with, std::vector<std::string>& told) : peers(with), log(told) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "participant"; }
    [[nodiscard]] session::StepParticipant* participant() noexcept override { return this; }
    void prepare(const session::StepInfo& step, bool skipped) override {
      log.push_back((skipped ? "skips " : "prepares ") + std::to_string(step.step));
      EXPECT_EQ(peers.all_gather("ready", "a test").size(), 2U);  // ranks may communicate here
    }
    void commit() override { log.emplace_back("commits"); }
    exchange::Peers& peers;
    std::vector<std::string>& log;
  };
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    std::vector<std::string> log;
    auto gradients = make_gradients();
    Session session =
        make(transport,
             {[&](const PartInputs& inputs) { return std::make_unique<Participant>(inputs.runner.peers(), log); }});
    add_all(session, gradients);
    session.set_loss_scale(1);  // steps with NaN or Inf are skipped
    take_step(session, gradients, 0);
    fill(gradients, session.rank(), 1);
    gradients[0].values[0] = std::numeric_limits<float>::infinity();
    for (const Gradient& gradient : gradients) {
      session.ready(gradient.id);
    }
    EXPECT_TRUE(session.finish().skipped);
    EXPECT_THAT(log, ElementsAre("prepares 0", "commits", "skips 1", "commits"));
  });
}

TEST(PartSet, AMakerThatReturnsNullMakesNoPart) {
  run_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    auto gradients = make_gradients();
    Session plain = make(transport, {[](const PartInputs&) { return std::unique_ptr<Part>(); }});
    add_all(plain, gradients);
    take_step(plain, gradients, 0);
    EXPECT_THAT(plain.explain(), ::testing::Not(HasSubstr("counted")));
  });
}

}  // namespace
}  // namespace gradwire::test
