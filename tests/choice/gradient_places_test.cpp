// Tests which all-reduces count as gradients: sequences of calls as jobs make them.
#include "choice/gradient_places.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace gradwire::choice {
namespace {

using Calls = std::vector<PlacedCall>;

// Makes a call of each letter: the same letter is the same address, "?" a new one, "|" a mark before the next call, "/"
// a call on another communicator before it.
class Job {
 public:
  explicit Job(bool half = false) : half_(half) {}

  Job& step(const std::string& letters, int times = 1) {
    for (int i = 0; i < times; ++i) {
      for (const char letter : letters) {
        if (letter == '|') {
          mark_ = true;
        } else if (letter == '/') {
          apart_ = true;
        } else {
          calls.push_back({.address = letter == '?' ? ++fresh_ : static_cast<std::uint64_t>(letter),
                           .mark = std::exchange(mark_, false),
                           .apart = std::exchange(apart_, false),
                           .half = half_});
        }
      }
    }
    return *this;
  }
  // "ggn": gradient, gradient, none; empty: the step is not known.
  [[nodiscard]] std::string places(std::size_t shortest = 1) const {
    const std::size_t period = find_step(calls, shortest);
    std::string text;
    for (const bool gradient : gradients_of_step(calls, period)) {
      text += gradient ? 'g' : 'n';
    }
    return text;
  }

  Calls calls;

 private:
  bool half_;
  bool mark_ = false;
  bool apart_ = false;
  std::uint64_t fresh_ = 1000;
};

// Mutation tried: three steps suffice.
TEST(GradientPlaces, BucketsAreGradientsAfterFourSteps) {
  EXPECT_EQ(Job().step("abc", 3).places(3), "") << "sizes that differ";
  EXPECT_EQ(Job().step("abc", 4).places(3), "ggg");
  EXPECT_EQ(Job().step("abc", 30).places(3), "ggg");
  EXPECT_EQ(Job().step("|abc", 4).places(), "ggg") << "with the loss";
  EXPECT_EQ(Job().step("ab|c", 4).places(), "ggg");
}

// Mutation tried: only 16-bit values wait.
TEST(GradientPlaces, CallsThatAllLookAlikeWaitForAMark) {
  EXPECT_EQ(Job().step("abc", 341).places(), "");
  EXPECT_EQ(Job().step("abc", 342).places(), "ggg");
  EXPECT_EQ(Job().step("tu", 500).places(), "") << "activations that take turns, or two buckets";
  EXPECT_EQ(Job().step("|tu", 6).places(), "gg");
}

// Mutation tried: calls on other communicators are not looked at.
TEST(GradientPlaces, CallsOnOtherCommunicatorsShowTheStepOfCallsThatLookAlike) {
  std::string layers;  // tensor parallelism; data parallelism has a communicator of its own
  for (int layer = 0; layer < 48; ++layer) {
    layers += layer == 0 ? "/tu" : "tu";
  }
  for (const bool half : {false, true}) {
    for (int steps = 2; steps < 40; ++steps) {
      EXPECT_EQ(Job(half).step(layers, steps).places(), "") << steps;
    }
    EXPECT_EQ(Job(half).step("/ab", 6).places(), "gg") << "buckets between calls of tensor parallelism";
  }
  EXPECT_EQ(Job().step("a/bc").step("ab/c").step("/abc", 4).places(3), "ggg") << "sizes differ: any order will do";
}

TEST(GradientPlaces, LongerRhythmsShowWhatBrokeOnce) {
  const Calls calls = Job().step("abc", 5).step("aBc").step("abc", 6).calls;
  EXPECT_EQ(gradients_of_step(calls, 3), std::vector({true, true, true}));
  EXPECT_EQ(gradients_of_step(calls, 3, 12), std::vector({true, false, true}));
  EXPECT_EQ(gradients_of_step(calls, 3, 13), std::vector({false, false, false})) << "so many steps are not known";
}

TEST(GradientPlaces, TheFirstStepsOfAJobDoNotMatter) {
  EXPECT_EQ(Job().step("|xyz|w|").step("abc", 8).places(3), "ggg") << "DDP makes its buckets anew after one step";
  EXPECT_EQ(Job().step("abc", 4).step("aBc").places(3), "gng") << "one moved";
  EXPECT_EQ(Job().step("abc", 4).step("aBc", 4).places(3), "ggg");
}

// Mutations tried: an address may come twice in a step; an address may change.
TEST(GradientPlaces, ActivationsAreNone) {
  EXPECT_EQ(Job().step("tabt", 8).places(4), "nggn") << "the same address twice a step";
  EXPECT_EQ(Job().step("??ab", 8).places(4), "nngg") << "addresses that change";
  EXPECT_EQ(Job().step("|?ab?", 8).places(), "nggn");
  EXPECT_EQ(Job().step("tttt", 40).places(), "") << "no gradients, so no step";
  EXPECT_EQ(Job().step("????", 40).places(), "");
  EXPECT_EQ(Job().step("|tutu", 40).places(), "") << "two addresses that take turns";
  EXPECT_EQ(Job().step("|tu?utt", 40).places(), "");
}

TEST(GradientPlaces, ASingleBufferIsNoEvidenceUnlessStepsAreMarked) {
  EXPECT_EQ(Job().step("a", 2000).places(), "");
  EXPECT_EQ(Job().step("|a", 3).places(), "");
  EXPECT_EQ(Job().step("|a", 4).places(), "g");
}

// Mutations tried: marks are not looked at; the wait for 16-bit values is left out.
TEST(GradientPlaces, SixteenBitsWaitForAMark) {
  EXPECT_EQ(Job(true).step("abc", 300).places(), "");
  EXPECT_EQ(Job(true).step("abc", 342).places(), "ggg");
  EXPECT_EQ(Job(true).step("|abc", 5).places(), "ggg");
  std::string layers;
  for (int layer = 0; layer < 80; ++layer) {
    layers += layer == 40 ? "tu|tu" : "tutu";
  }
  for (int steps = 1; steps < 20; ++steps) {
    EXPECT_EQ(Job(true).step(layers, steps).places(), "") << steps;
  }
}

// Whatever a step has, buckets at addresses of their own are found, and nothing else is.
TEST(GradientPlaces, RandomSteps) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::string step = "|";
    std::string expected;
    const int buckets = 1 + static_cast<int>(random() % 5);
    const int activations = static_cast<int>(random() % 6);
    std::string order = std::string("abcde").substr(0, static_cast<std::size_t>(buckets));
    for (int i = 0; i < activations; ++i) {
      order += random() % 2 == 0 ? "?" : "tt";
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const char call : order) {
      step += call;
      expected += call >= 'a' && call <= 'e' ? 'g' : 'n';
    }
    Job job(random() % 2 == 0);
    job.step(order.substr(0, random() % order.size()));
    job.step(step, 10);
    EXPECT_EQ(job.places(), expected) << step;
  }
}

// A job of activations alone is looked at for the whole of its history now and then.
TEST(GradientPlaces, ALongHistoryIsQuick) {
  Job job;
  job.step("t", 8192);
  EXPECT_EQ(job.places(), "");
}

}  // namespace
}  // namespace gradwire::choice
