#include "bench/auto/contest.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <span>

#include "bench/support/inputs.hpp"
#include "bench/support/samples.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/mpi.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBlockSeconds = 0.02;
constexpr int kMostCalls = 200;         // limit for a block
constexpr double kWarmUpSeconds = 1.5;  // for a session that chooses
constexpr int kLeastWarmUp = 90;        // calls: past the steps that allow no less than 8 bits, and a dwell
constexpr int kMostWarmUp = 3000;

struct Runner {
  std::string name;
  std::function<void()> call;
};

// Returns the seconds of the slowest rank. A barrier before lets the ranks begin together.
double time_calls(const std::function<void()>& call, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < calls; ++i) {
    call();
  }
  double seconds = std::chrono::duration<double>(Clock::now() - start).count() / calls;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

// Computes the mean over ranks by MPI_Allreduce, like a program without a session.
void mean_in_place(std::span<float> values) {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const float part = 1.0F / static_cast<float>(ranks);
  for (float& value : values) {
    value *= part;
  }
}

Policy policy_of(const std::string& name, const ContestOptions& options) {
  if (name == "auto") {
    return Policy::automatic({options.allow.begin(), options.allow.end()});
  }
  return name.starts_with("dense") ? Policy::uniform("exact", Algorithm::dense) : Policy::uniform(name);
}

}  // namespace

const Contender& Contest::of(const std::string& name) const {
  return *std::find_if(contenders.begin(), contenders.end(), [&](const Contender& c) { return c.name == name; });
}

double Contest::ratio(const std::string& name, const std::string& against) const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < of(name).seconds.size(); ++i) {
    ratios.push_back(of(name).seconds[i] / of(against).seconds[i]);
  }
  return median(ratios);
}

const Contender& Contest::best_fixed() const {
  const Contender* best = &of("dense");
  for (const Contender& contender : contenders) {
    const bool fixed =
        contender.name != "auto" && !contender.name.starts_with("MPI") && contender.name != "dense again";
    if (fixed && median(contender.seconds) < median(best->seconds)) {
      best = &contender;
    }
  }
  return *best;
}

Contest hold(const ContestOptions& options, std::uint64_t bytes) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::uint64_t count = bytes / sizeof(float);
  const Buffers gradient(Placement::in_place, bytes);  // means in place stay finite
  fill_gradient(rank, 0, {gradient.send(), count});
  const Buffers buffers(options.placement, options.link.empty() ? bytes : sizeof(float));
  const Buffers own(Placement::in_place, options.link.empty() ? bytes : sizeof(float));
  fill_gradient(rank, 0, {own.send(), options.link.empty() ? count : 1});
  std::vector<std::string> names{"auto", "dense", "dense again"};
  names.insert(names.end(), options.allow.begin(), options.allow.end());
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Runner> runners;
  for (const std::string& name : names) {
    sessions.push_back(
        std::make_unique<Session>(mpi::make_session(make_emulated(mpi::make_transport(MPI_COMM_WORLD), options.link),
                                                    policy_of(name, options), {.reduction = Reduction::mean})));
    Session& session = *sessions.back();
    const TensorId id = session.add("gradient", view(gradient.send(), count));
    runners.push_back({name, [&session, id] {
                         session.ready(id);
                         session.finish();
                       }});
  }
  if (options.link.empty()) {
    for (const char* name : {"MPI_Allreduce", "MPI_Allreduce again"}) {
      runners.push_back({name, [&] {
                           MPI_Allreduce(buffers.in_place() ? MPI_IN_PLACE : buffers.send(), buffers.receive(),
                                         static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                         }});
    }
    runners.push_back({"MPI mean", [&] { mean_in_place({own.send(), count}); }});
  }
  Contest contest;
  contest.bytes = bytes;
  for (const Runner& runner : runners) {
    contest.contenders.push_back({runner.name, {}});
    runner.call();
  }
  const double once = time_calls(runners[1].call, 3);
  const int warm_up = std::clamp(static_cast<int>(kWarmUpSeconds / once), kLeastWarmUp, kMostWarmUp);
  (void)time_calls(runners[0].call, warm_up);
  const int calls = std::clamp(static_cast<int>(kBlockSeconds / once), 1, kMostCalls);
  const double compared = sessions[0]->statistics().comparison_seconds;
  for (int block = 0; block < options.pairs; ++block) {
    for (std::size_t i = 0; i < runners.size(); ++i) {
      const std::size_t at = block % 2 == 0 ? i : runners.size() - 1 - i;
      contest.contenders[at].seconds.push_back(time_calls(runners[at].call, calls));
    }
  }
  const SessionStatistics statistics = sessions[0]->statistics();
  const std::vector<double>& blocks = contest.of("auto").seconds;
  contest.deciding =
      (statistics.comparison_seconds - compared) / (calls * std::accumulate(blocks.begin(), blocks.end(), 0.0));
  contest.chosen = statistics.groups[0].codec;
  contest.switches = statistics.switches.size() - 1;
  return contest;
}

}  // namespace gradwire::bench
