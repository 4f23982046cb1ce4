// Tests the routes of long streams of calls against recorded decisions: a router that decides differently about the
// same calls and the same measurements changes a figure.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "drop_in/router.hpp"
#include "gradwire/policy.hpp"

namespace gradwire::drop_in {
namespace {

AgreedSettings agreement_of(Mode mode, bool dry_run = false, bool ranks_differ = false) {
  AgreedSettings agreement;
  agreement.mode = mode;
  agreement.dry_run = dry_run;
  agreement.ranks_differ = ranks_differ;
  return agreement;
}

struct Scenario {
  std::string name;
  std::string policy;
  AgreedSettings agreement = agreement_of(Mode::compressing);
};

std::string hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  return std::to_string(hash);
}

class Stream {
 public:
  explicit Stream(const Scenario& scenario)
      : configuration_(make(scenario.policy)),
        router_(
            configuration_, ledger_, scenario.agreement, [this](std::uint64_t) { return chance(8) != 0; },
            [this](std::span<double> values) { values[0] = chance(40) == 0 ? 1 : values[0]; },
            [this](std::uint64_t) { return chance(30) != 0; }) {
    router_.set_tells(true);
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      const bool other_step = chance(30) == 0;  // a step with other calls
      for (std::uint64_t order = 0; order < 6; ++order) {
        make_call(other_step ? order + 1 : order);
      }
      if (chance(25) == 0) {
        router_.stand_aside(chance(2) == 0);
      }
    }
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string reasons() const {
    std::string all;
    for (const auto& [reason, calls] : reasons_) {
      all += (all.empty() ? "" : ", ") + reason + " " + std::to_string(calls);
    }
    return all;
  }

 private:
  static Configuration make(const std::string& policy) {
    Configuration configuration;
    configuration.mode = Mode::compressing;
    configuration.planner = plan::CallPlanner(Policy::parse("version = 1\n" + policy));
    return configuration;
  }

  std::uint32_t chance(std::uint32_t of) { return random_() % of; }
  double seconds(std::uint64_t bytes, double factor) {
    return 1e-5 + factor * 1e-9 * static_cast<double>(bytes) * (1 + 0.1 * chance(100) / 100);
  }

  void make_call(std::uint64_t which) {
    constexpr std::uint64_t kCounts[] = {20000, 300000, 5000, 1 << 20, 70000, 20000, 40000};
    Call call{.function = which % 3 == 2 ? Function::mpi_reduce_scatter_block : Function::mpi_allreduce,
              .dtype = which == 4 ? DType::f16 : DType::f32,
              .reduction = Reduction::sum,
              .count = kCounts[which],
              .world_size = 4};
    switch (chance(60)) {
      case 0: call.reduction.reset(); break;
      case 1: call.dtype.reset(); break;
      case 2: call.agreed = false; break;
      case 3: call.dtype = DType::f64; break;
      case 5: call.blocking = false; break;
      case 6: call.world_size = 1; break;
      default: break;
    }
    const std::string name = which % 2 == 0 ? "layer" + std::to_string(which) : "";
    const Router::Origin origin{.name = name, .buffer = reinterpret_cast<const void*>(0x1000 * (which + 1))};
    const CallDecision decided = router_.decide(call);
    const bool could = router_.could_compress(call, decided);
    const Router::Route route = router_.route(call, decided, "sum", origin);
    note(could, route);
    after(route, call);
  }

  void note(bool could, const Router::Route& route) {
    const std::string reason = route.decision.compress ? "none" : choice::text(route.decision.reason);
    ++reasons_[reason];
    EXPECT_EQ(route.decision.reason, route.what.reason);
    const auto number = [](const auto& value) { return value ? std::to_string(*value) : std::string("-"); };
    text_ += (could ? "could " : "") + reason + " " + route.what.codec + " " + route.what.name + " " +
             number(route.what.order) + " " + std::string(to_string(route.algorithm)) + " " +
             (route.second_hop ? route.second_hop->to_string() : "-") + " " + number(route.keeps) + " " +
             std::to_string(route.resets) + " " + std::to_string(route.turn.way) + (route.turn.timed ? " timed" : "") +
             (route.turn.trial ? " trial" : "") + (route.turn.passed_first ? " first" : "") +
             (route.choice ? " chosen" : "") + (route.lossy ? " lossy" : "") + (route.lasting ? " lasting" : "") + " " +
             number(route.sample) + " " + std::to_string(route.ways.size()) +
             (route.turn.left == nullptr ? "" : std::to_string(*route.turn.left)) + "\n";
  }

  void after(const Router::Route& route, const Call& call) {
    const std::uint64_t bytes = call.count * element_bytes(call.dtype.value_or(DType::f32));
    const double error = 1e-4 * chance(120);
    if (route.decision.compress && !router_.dry_run()) {
      router_.count(route, {.bytes_in = bytes}, {}, route.sample ? std::optional(error) : std::nullopt);
    } else {
      router_.count_passed(route, bytes, 0);
    }
    if (route.turn.trial) {
      std::vector<double> took{seconds(bytes, 1)};
      std::vector<std::optional<double>> errors;
      for (std::size_t way = 0; way < route.ways.size(); ++way) {
        took.push_back(seconds(bytes, way % 2 == 0 ? 0.6 : 0.9));
        errors.emplace_back(error);
      }
      router_.trial_made(route, took, seconds(bytes, 0.1), errors);
    } else if (route.turn.timed) {
      router_.measured(seconds(bytes, chance(50) == 0 ? 4 : 1));
    }
    for (const std::string& line : router_.take_lines()) {
      text_ += line + "\n";
    }
  }

  std::mt19937 random_{12345};
  Configuration configuration_;
  Ledger ledger_;
  Router router_;
  std::map<std::string, int> reasons_;
  std::string text_;
};

const std::string kRules =
    "[[rule]]\nmatch = \"layer2*\"\ncodec = \"exact\"\n[[rule]]\nmatch = \"layer*\"\ncodec = \"int4\"\n"
    "[[rule]]\nmin_bytes = \"1MiB\"\ncodec = \"fp8\"\n";
const std::string kOrders = "[defaults]\ncodec = \"bf16\"\n[[rule]]\norder = 1\ncodec = \"int4\"\n";
const std::string kAuto = "[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\n";
const std::string kSteps = "[defaults]\ncodec = \"int4\"\nwarmup = [{ until_step = 5, codec = \"bf16\" }]\n";

const std::vector<Scenario> kScenarios = {
    {"one codec", "[defaults]\ncodec = \"int8\"\n"},
    {"auto", kAuto},
    {"auto, two codecs, a bound", "[defaults]\ncodec = \"auto\"\nallow = [\"int8\", \"int4\"]\nmax_error = 0.01\n"},
    {"a bound", "[defaults]\ncodec = \"int8\"\nmax_error = 0.01\n"},
    {"names", kRules},
    {"orders", kOrders},
    {"steps", kSteps},
    {"exact", "[defaults]\ncodec = \"exact\"\n"},
    {"auto beside rules", kAuto + kRules},
    {"auto, dry", kAuto, agreement_of(Mode::observing, true)},
    {"steps, dry", kSteps, agreement_of(Mode::observing, true)},
    {"observing", kAuto, agreement_of(Mode::observing)},
    {"ranks differ", kAuto, agreement_of(Mode::disabled, false, true)},
};

// For each case, how many calls passed for which reason ("none": compressed), and a hash of all decisions.
const std::map<std::string, std::pair<std::string, std::string>> kExpected = {
    {"one codec",
     {"below the floor 200, communicator of one rank 8, neither sum nor average 18, nonblocking 25, none 601, ranks "
      "have not agreed yet 18, some rank cannot compress here 297, type is not compressed 33",
      "2385098548034716397"}},
    {"auto",
     {"being measured 270, communicator of one rank 21, neither sum nor average 17, nonblocking 24, none 220, ranks "
      "have not agreed yet 23, some rank cannot compress here 489, too large to be made both ways 93, type is not "
      "compressed 43",
      "5341289106726543526"}},
    {"auto, two codecs, a bound",
     {"being measured 76, communicator of one rank 17, error above max_error 155, neither sum nor average 20, "
      "nonblocking 27, ranks have not agreed yet 20, some rank cannot compress here 820, too large to be made both "
      "ways 25, type is not compressed 40",
      "12884752156949685611"}},
    {"a bound",
     {"being measured 6, below the floor 200, communicator of one rank 16, error above max_error 274, neither sum nor "
      "average 20, nonblocking 18, none 420, ranks have not agreed yet 19, some rank cannot compress here 197, type is "
      "not compressed 30",
      "13422721819780649909"}},
    {"names",
     {"below the floor 200, communicator of one rank 8, neither sum nor average 18, nonblocking 25, ranks have not "
      "agreed yet 18, some rank cannot compress here 297, step not known yet 601, type is not compressed 33",
      "10102578873990417972"}},
    {"orders",
     {"below the floor 200, communicator of one rank 8, neither sum nor average 18, nonblocking 25, ranks have not "
      "agreed yet 18, some rank cannot compress here 297, step not known yet 601, type is not compressed 33",
      "10102578873990417972"}},
    {"steps",
     {"below the floor 200, communicator of one rank 8, neither sum nor average 18, nonblocking 25, ranks have not "
      "agreed yet 18, some rank cannot compress here 297, step not known yet 601, type is not compressed 33",
      "10102578873990417972"}},
    {"exact",
     {"below the floor 200, communicator of one rank 8, neither sum nor average 18, nonblocking 25, policy says exact "
      "601, ranks have not agreed yet 18, some rank cannot compress here 297, type is not compressed 33",
      "15139244127233203617"}},
    {"auto beside rules",
     {"communicator of one rank 11, neither sum nor average 20, nonblocking 31, ranks have not agreed yet 21, some "
      "rank cannot compress here 357, step not known yet 721, type is not compressed 39",
      "717077388641913686"}},
    {"auto, dry",
     {"communicator of one rank 11, neither sum nor average 20, nonblocking 31, none 721, ranks have not agreed yet "
      "21, some rank cannot compress here 357, type is not compressed 39",
      "13269951638523028803"}},
    {"steps, dry",
     {"below the floor 200, communicator of one rank 8, neither sum nor average 18, nonblocking 25, ranks have not "
      "agreed yet 18, some rank cannot compress here 297, step not known yet 601, type is not compressed 33",
      "10102578873990417972"}},
    {"observing",
     {"communicator of one rank 11, neither sum nor average 20, nonblocking 31, observed: no codec was named 1078, "
      "ranks have not agreed yet 21, type is not compressed 39",
      "5881642777438440947"}},
    {"ranks differ",
     {"communicator of one rank 11, neither sum nor average 20, nonblocking 31, ranks differ 1078, ranks have not "
      "agreed yet 21, type is not compressed 39",
      "6806298375639257387"}},
};

TEST(Routes, AreThoseThatWereDecidedBefore) {
  for (const Scenario& scenario : kScenarios) {
    Stream stream(scenario);
    stream.run(200);
    const auto expected = kExpected.find(scenario.name);
    ASSERT_NE(expected, kExpected.end()) << scenario.name << ": " << stream.reasons() << ": " << hash_of(stream.text());
    EXPECT_EQ(stream.reasons(), expected->second.first) << scenario.name;
    EXPECT_EQ(hash_of(stream.text()), expected->second.second) << scenario.name;
  }
}

// Mutation tried: route() decides again.
TEST(Routes, ACallIsDecidedOnceAndGoesByThat) {
  Configuration configuration;
  configuration.planner = plan::CallPlanner(Policy::parse("version = 1\n[defaults]\ncodec = \"int8\"\n"));
  Ledger ledger;
  Router router(configuration, ledger, agreement_of(Mode::compressing), [](std::uint64_t) { return true; });
  const Call call{.function = Function::mpi_allreduce,
                  .dtype = DType::f32,
                  .reduction = Reduction::sum,
                  .count = 1 << 20,
                  .world_size = 4};
  ASSERT_TRUE(router.decide(call).compress);
  EXPECT_EQ(router.route(call, {.compress = false, .reason = Reason::grouped}, "sum", {}).what.reason, Reason::grouped);
  router.stand_aside(true);
  const CallDecision decided = router.decide(call);
  EXPECT_TRUE(decided.compress && router.could_compress(call, decided)) << "ranks may agree again before the call";
  EXPECT_EQ(router.route(call, decided, "sum", {}).what.reason, Reason::aside);
  router.stand_aside(false);
  EXPECT_TRUE(router.route(call, decided, "sum", {}).decision.compress);
}

}  // namespace
}  // namespace gradwire::drop_in
