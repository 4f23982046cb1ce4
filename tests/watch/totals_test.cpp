// Tests the totals of a process, and which subscribers get them.
#include "watch/totals.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

namespace gradwire::watch {
namespace {

using observe::Event;
using observe::EventKind;
using ::testing::ElementsAre;

struct Seen {
  std::vector<std::uint64_t> steps;  // steps of rank 3, after each round
  bool ended = false;
};

class Looker final : public Subscriber {
 public:
  Looker(Seen& seen, std::size_t fails_at, std::size_t done_after)
      : seen_(seen), fails_at_(fails_at), done_after_(done_after) {}
  void take(Totals& totals) override {
    seen_.steps.push_back(totals.aggregate().ranks().at(3).events[EventKind::step_end]);
    seen_.ended = totals.reader().ended;
    if (seen_.steps.size() == fails_at_) {
      throw std::runtime_error("cannot go on");
    }
  }
  [[nodiscard]] bool done() const noexcept override { return seen_.steps.size() == done_after_; }

 private:
  Seen& seen_;
  std::size_t fails_at_;
  std::size_t done_after_;
};

constexpr std::size_t kNever = 1000;

class TotalsOfAProcess : public ::testing::Test {
 protected:
  Seen& subscribe(std::size_t fails_at = kNever, std::size_t done_after = kNever) {
    seen_.push_back(std::make_unique<Seen>());
    sink_.subscribe(std::make_unique<Looker>(*seen_.back(), fails_at, done_after));
    return *seen_.back();
  }
  void take_steps(std::size_t count, bool last = false) {
    const std::vector<Event> events(count, Event{.duration = 1, .kind = EventKind::step_end});
    const std::vector<observe::Stretch> stretches{{1, events}};
    sink_.take({.scale = {}, .stretches = stretches, .last = last});
  }

  TotalsSink sink_{{.rank = [] { return std::optional(3); },
                    .replaced =
                        [this] {
                          ++asked_;
                          return std::vector<ReplacedCalls>();
                        }}};
  int asked_ = 0;
  std::vector<std::unique_ptr<Seen>> seen_;
};

TEST_F(TotalsOfAProcess, AreAddedOnceForAll) {
  Seen& one = subscribe();
  Seen& other = subscribe();
  take_steps(2);
  take_steps(3, true);
  EXPECT_THAT(one.steps, ElementsAre(2, 5));
  EXPECT_THAT(other.steps, ElementsAre(2, 5));
  EXPECT_TRUE(one.ended && other.ended);
  EXPECT_EQ(asked_, 0) << "a drop-in's calls are counted only on request";
}

TEST_F(TotalsOfAProcess, OneThatFailsKeepsNothingFromTheOthers) {
  Seen& fails = subscribe(1);
  Seen& leaves = subscribe(kNever, 2);
  Seen& stays = subscribe();
  for (int i = 0; i < 3; ++i) {
    take_steps(1);
    EXPECT_FALSE(sink_.done());
  }
  EXPECT_THAT(fails.steps, ElementsAre(1));
  EXPECT_THAT(leaves.steps, ElementsAre(1, 2));
  EXPECT_THAT(stays.steps, ElementsAre(1, 2, 3));
}

TEST_F(TotalsOfAProcess, WithoutSubscribersThereIsNothingToDo) {
  EXPECT_TRUE(sink_.done());
  subscribe(kNever, 1);
  EXPECT_FALSE(sink_.done());
  take_steps(1);
  EXPECT_TRUE(sink_.done());
}

TEST_F(TotalsOfAProcess, APageHasWhatWasAddedSoFar) {
  take_steps(4);
  const std::vector<Family> page = sink_.totals()->page();
  const auto steps = std::find_if(page.begin(), page.end(),
                                  [](const Family& family) { return family.name == "gradwire_step_exposed_seconds"; });
  ASSERT_NE(steps, page.end());
  ASSERT_EQ(steps->histograms.size(), 1U);
  EXPECT_EQ(steps->histograms[0].histogram.count(), 4U);
  EXPECT_EQ(asked_, 1);
}

}  // namespace
}  // namespace gradwire::watch
