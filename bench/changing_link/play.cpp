#include "bench/changing_link/play.hpp"

#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include "bench/support/inputs.hpp"
#include "gradwire/emulation.hpp"
#include "gradwire/session.hpp"
#include "gradwire/transport.hpp"

namespace gradwire::changing_link {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kVariants = 61;  // each step's gradients begin at another place in the source

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// State that the ranks of one run share.
struct Shared {
  explicit Shared(std::uint64_t steps) : picks(steps) {}
  std::vector<std::atomic<int>> picks;  // by step: 1 + index of the policy; 0 until rank 0 has chosen
  std::atomic<int> prepared{0};
  std::atomic<std::int64_t> start_ns{0};  // of the schedule, set when all ranks are prepared
  std::atomic<bool> failed{false};

  template <class Reached>
  void wait_until(const Reached& reached) const {
    while (!reached()) {
      if (failed) {
        throw Error(ErrorCode::aborted, "another rank failed");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

// Adds switches as uses. All buckets that change at one step are one switch, to whichever codecs they change.
void add_uses(const std::vector<CodecSwitch>& switches, std::vector<Use>& uses) {
  for (const CodecSwitch& one : switches) {
    if (uses.empty() || uses.back().step != one.step) {
      uses.push_back({one.step, uses.empty() ? decltype(Use::buckets)() : uses.back().buckets, ""});
    }
    Use& use = uses.back();
    use.reason += (use.reason.empty() ? "" : "; ") + one.reason;
    use.buckets[one.to] += one.buckets;
    if (!one.from.empty() && (use.buckets[one.from] -= one.buckets) == 0) {
      use.buckets.erase(one.from);
    }
  }
}

/// One rank, with a session for each policy, over one set of gradients.
class Rank {
 public:
  Rank(const Setting& setting, const Player& player, Shared& shared, int rank)
      : setting_(setting), player_(player), shared_(shared), rank_(rank) {
    source_.resize(setting.elements + kVariants);
    bench::fill_gradient(rank, 0, source_);
    gradients_.assign(static_cast<std::size_t>(setting.tensors), std::vector<float>(setting.elements));
  }

  void add_session(std::shared_ptr<Transport> transport, const Policy& policy) {
    auto& session = sessions_.emplace_back(std::make_unique<Session>(std::move(transport), policy));
    ids_.emplace_back();
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      ids_.back().push_back(
          session->add("layer" + std::to_string(i), view(gradients_[i].data(), gradients_[i].size())));
    }
  }

  void run(Clock::time_point start, Trace& trace) {
    for (auto& session : sessions_) {
      session->reserve();
    }
    ++shared_.prepared;
    shared_.wait_until([&] { return shared_.prepared == setting_.ranks; });
    trace.setup_seconds = seconds_between(made_, Clock::now());
    std::this_thread::sleep_until(start);
    for (std::uint64_t step = 0; step < setting_.steps; ++step) {
      const Clock::time_point begin = Clock::now();
      Session& session = *sessions_[policy_of(step, begin - start, trace)];
      backward(session, step);
      session.finish();
      trace.steps.push_back({seconds_between(start, begin), seconds_between(begin, Clock::now())});
    }
    for (const auto& session : sessions_) {
      const SessionStatistics statistics = session->statistics();
      add_uses(statistics.switches, trace.uses);
      const Statistics all = statistics.all();
      trace.bytes_sent += static_cast<double>(all.bytes_sent);
      trace.bytes_uncompressed += static_cast<double>(all.bytes_uncompressed);
    }
  }

 private:
  // Rank 0 chooses by the clock, and the others use its choice.
  std::size_t policy_of(std::uint64_t step, std::chrono::nanoseconds time, Trace& trace) {
    std::atomic<int>& pick = shared_.picks[step];
    if (rank_ == 0) {
      pick = 1 + static_cast<int>(player_.pick ? player_.pick(time) : 0);
    }
    shared_.wait_until([&] { return pick != 0; });
    const auto index = static_cast<std::size_t>(pick - 1);
    const std::string& label = player_.labels[index];
    if (!label.empty() && (trace.uses.empty() || !trace.uses.back().buckets.contains(label))) {
      trace.uses.push_back({step, {{label, 1}}, step == 0 ? "" : "as planned"});
    }
    return index;
  }

  // Plays a backward pass, in which the last layers are ready first.
  void backward(Session& session, std::uint64_t step) {
    const auto& ids = ids_[static_cast<std::size_t>(shared_.picks[step] - 1)];
    const auto part = setting_.compute / static_cast<int>(gradients_.size());
    Clock::time_point next = Clock::now();
    for (std::size_t i = gradients_.size(); i-- > 0;) {
      const auto first = source_.begin() + static_cast<std::ptrdiff_t>((step * 7 + i * 3) % kVariants);
      std::copy_n(first, gradients_[i].size(), gradients_[i].begin());
      std::this_thread::sleep_until(next += part);
      session.ready(ids[i]);
    }
  }

  const Setting& setting_;
  const Player& player_;
  Shared& shared_;
  int rank_;
  Clock::time_point made_ = Clock::now();
  std::vector<float> source_;
  std::vector<std::vector<float>> gradients_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::vector<TensorId>> ids_;  // by session
};

}  // namespace

Trace play(const Setting& setting, const Player& player) {
  // The schedule starts after enough time for ranks to agree, and for auto to calibrate; a session that takes longer
  // starts late.
  const bool chooses = player.policies.front().defaults.is_auto();
  const Clock::time_point start = Clock::now() + std::chrono::milliseconds(chooses ? 700 : 200);
  std::vector<std::vector<std::shared_ptr<Transport>>> worlds;  // one for each policy
  for (std::size_t i = 0; i < player.policies.size(); ++i) {
    worlds.push_back(make_inproc_world(setting.ranks));
    for (auto& transport : worlds.back()) {
      transport = make_throttled(transport, setting.link, start);
    }
  }
  Shared shared(setting.steps);
  std::vector<Trace> traces(static_cast<std::size_t>(setting.ranks));
  std::vector<std::exception_ptr> errors(traces.size());
  std::vector<std::thread> threads;
  threads.reserve(traces.size());
  for (int rank = 0; rank < setting.ranks; ++rank) {
    threads.emplace_back([&, rank, place = static_cast<std::size_t>(rank)] {
      try {
        Rank player_rank(setting, player, shared, rank);
        for (std::size_t i = 0; i < worlds.size(); ++i) {
          player_rank.add_session(worlds[i][place], player.policies[i]);
        }
        player_rank.run(start, traces[place]);
      } catch (const std::exception&) {
        errors[place] = std::current_exception();
        shared.failed = true;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
  traces[0].name = player.name;
  return std::move(traces[0]);
}

}  // namespace gradwire::changing_link
