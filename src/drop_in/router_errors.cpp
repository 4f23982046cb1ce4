// How a router handles the error of lossy calls: bounds, samples, and lines to print.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/current_error.hpp"
#include "base/units.hpp"
#include "codec/codec.hpp"
#include "drop_in/call_sample.hpp"
#include "drop_in/router.hpp"

namespace gradwire::drop_in {
namespace {

constexpr std::size_t kMostWatched = 1024;

// A sample of a lossy call is compared with an exact sum: for the first call of a class, then with a bound for every
// 64th call, otherwise at doubling distances up to kMostBetweenSamples.
constexpr std::uint64_t kSampleEvery = 64;
constexpr std::uint64_t kMostBetweenSamples = 4096;

// "MPI_Allreduce of 4MiB of f32 by int8"
std::string describe(const CallClass& what) {
  const std::uint64_t bytes = what.count * element_bytes(*what.dtype);
  return std::string(name_of(what.function)) + " of " + format_bytes(bytes) + " of " +
         std::string(to_string(*what.dtype)) + (what.codec.empty() ? "" : " by " + what.codec);
}

bool is_lossy(const policy::Stage& stage, DType dtype) {
  const auto drops = [dtype](const CodecSpec& codec) { return codec::Codec(codec, dtype).lossy(); };
  return drops(stage.codec) || drops(stage.second_hop) || drops(stage.intra.value_or(stage.codec));
}

}  // namespace

ChoiceClass Router::class_of(const Call& call, const plan::CallPlan& plan) {
  return {.function = call.function,
          .dtype = *call.dtype,
          .rule = static_cast<std::uint32_t>(plan.rule ? *plan.rule + 1 : 0),
          .size = size_class(call.count * element_bytes(*call.dtype))};
}

Router::Watched& Router::watched_of(const Route& route) {
  const std::pair key{*route.watched, route.stage.codec.to_string()};
  const auto known = watched_.find(key);
  if (known != watched_.end()) {
    return known->second;
  }
  if (watched_.size() >= kMostWatched) {
    return other_classes_;
  }
  Watched& made = watched_[key];
  made.lossy = is_lossy(route.stage, *route.what.dtype);
  return made;
}

void Router::watch(Route& route, const Call& call, const plan::CallPlan& plan) {
  route.watched = class_of(call, plan);
  Watched& watched = watched_of(route);
  route.lossy = watched.lossy;
  route.max_error = plan.policy.max_error;
  if (!watched.lossy) {
    return;
  }
  if (route.max_error && !route.choice) {  // a trial of codec = "auto" compares errors, too
    const std::uint64_t bytes = call.count * element_bytes(*call.dtype);
    if (watched.exceeded || watched.untried) {
      return pass(route, watched.exceeded ? Reason::inaccurate : Reason::untried);
    }
    if (!watched.tried) {
      watched.untried = !all_can_copy(bytes);
      if (trial_failed_) {
        return pass(route, Reason::aside);
      }
      route.turn = {.trial = !watched.untried, .passed_first = true};
      route.ways = {route.stage};
      return pass(route, watched.untried ? Reason::untried : Reason::measuring);
    }
  }
  if (watched.calls++ == watched.next) {
    route.sample = watched.samples++;
    const std::uint64_t distance = std::clamp(watched.next, kSampleEvery, kMostBetweenSamples);
    watched.next += route.max_error ? kSampleEvery : distance;
  }
}

bool Router::all_can_copy(std::uint64_t bytes) {
  if (bytes > kMostCopied || !can_copy_) {
    return false;  // on every rank
  }
  double cannot = can_copy_(bytes) ? 0 : 1;
  return exchange_before_trial(std::span(&cannot, 1)) && cannot == 0;
}

bool Router::exchange_before_trial(std::span<double> values) {
  try {
    worst_(values);
    return true;
  } catch (...) {
    set_aside(current_error().what());
    return false;
  }
}

void Router::trial_made(const Route& route, std::span<const double> seconds, double copying,
                        std::span<const std::optional<double>> errors) {
  std::vector<double> judged(seconds.begin(), seconds.end());
  std::optional<double> least;
  for (std::size_t way = 0; way < errors.size(); ++way) {
    if (route.max_error && errors[way] && !(*errors[way] <= *route.max_error)) {
      judged[way + 1] = INFINITY;
      least = std::min(least.value_or(kMostError), *errors[way]);
    }
  }
  const bool all = least && std::all_of(judged.begin() + 1, judged.end(), [](double way) { return std::isinf(way); });
  if (all) {
    exceed(route, *least);
  }
  if (route.choice) {
    auto_call_.concluded(judged, copying);
  } else if (!all && !errors.empty() && errors.front()) {  // otherwise the sum was not finite, and says nothing
    watched_of(route).tried = true;
  }
}

void Router::tell(std::string line) {
  if (tells_) {
    lines_.push_back(std::move(line));
  }
}

// The rule names the smallest size of the class, so that all of its calls follow it.
void Router::count_small_values(const Route& route, const codec::SmallValues& found) {
  if (route.stage.error_feedback || !found.lost() || !tells_ || !ledger_.first(Ledger::Warning::small_values)) {
    return;
  }
  tell(describe(route.what) + ": " + format_number(100 * found.zeroed_share(), 3) +
       "% of the values in a sample decode to 0 beside larger ones of their block (NMSE of the smaller half " +
       format_number(found.small_nmse(), 2) +
       "), without error feedback, so the parameters behind them do not change; write in a policy: [[rule]] min_bytes "
       "= " +
       std::to_string(std::uint64_t{1} << route.watched->size) +
       ", max_bytes = " + std::to_string((std::uint64_t{2} << route.watched->size) - 1) + ", codec = \"" +
       route.what.codec + "\", error_feedback = \"on\" (or codec = \"bf16\" alone); this is logged once");
}

void Router::set_aside(std::string_view why) noexcept {
  try {
    if (!std::exchange(trial_failed_, true)) {
      tell("calls on a communicator pass from now on: one was made both ways, to compare, and that failed: " +
           std::string(why));
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; what counts is done
  }
}

void Router::exceed(const Route& route, double error) {
  CallClass what = route.what;
  what.codec = route.stage.codec.to_string();
  tell(describe(what) + " has a relative error of " + format_number(error, 2) + ", above max_error " +
       format_number(*route.max_error, 2) + ": such calls pass from now on");
  if (route.choice) {
    auto_call_.bar(*route.choice, Reason::inaccurate);
  } else {
    watched_of(route).exceeded = true;
  }
}

void Router::look_at_error(const Route& route, std::optional<double> error) {
  if (route.lossy && tells_ && ledger_.first(Ledger::Warning::lossy)) {
    tell("sums are rounded from here on by a lossy codec: " + describe(route.what) + ", relative error " +
         (error ? format_number(*error, 2) : "not known") + "; this is logged once");
  }
  if (error && route.max_error && !(*error <= *route.max_error)) {
    exceed(route, *error);
  }
}

}  // namespace gradwire::drop_in
