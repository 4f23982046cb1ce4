#include "session/parts/rank_comparison/slow_judge.hpp"

#include <string>

#include "base/log.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"
#include "session/logging/logging.hpp"
#include "session/parts/rank_comparison/comparison_pace.hpp"

namespace gradwire::session {

void SlowJudge::judge(std::uint64_t step, const std::vector<observe::RankSeen>& ranks, double cost) {
  const std::vector<observe::Diagnosis> found = observe::diagnose(ranks, share_);
  // The first comparisons cover a few quick steps, in which ranks find their pace.
  const bool long_enough = ranks[0].steps * ranks[0].step_seconds >= ComparisonPace::kLeastSeconds / 2;
  if (long_enough) {
    for (const observe::SlowChange& change : slow_.update(found)) {
      log(rank_ == 0 ? LogLevel::warning : LogLevel::debug,
          "after step " + std::to_string(step) + " of a session of " + std::to_string(ranks.size()) +
              " ranks: " + observe::to_text(change, ranks[0].step_seconds));
    }
  }
  if (rank_ == 0 && logs(LogLevel::debug)) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      log(LogLevel::debug, "after step " + std::to_string(step) + ": rank " + std::to_string(i) + " " +
                               observe::to_text(ranks[i], found[i]));
    }
  }
  {
    const MutexLock lock(mutex_);
    state_ = {.cause = slow_.cause(rank_),
              .latest = found[static_cast<std::size_t>(rank_)],
              .comparisons = state_.comparisons + 1,
              .seconds = state_.seconds + cost};
  }
  if (long_enough) {
    expel_slow(found);
  }
}

// All ranks draw the same conclusion from the same numbers, so the rank that must leave does so by itself.
void SlowJudge::expel_slow(const std::vector<observe::Diagnosis>& found) {
  const int rank = expel_ ? expel_->update(found, slow_) : -1;
  if (rank < 0 || found.size() <= least_ || rank == told_) {
    return;
  }
  told_ = rank;
  const std::string text = "rank " + std::to_string(rank) + " must go, by [elastic] expel_slower_than: steps take " +
                           format_number(observe::slowdown(found[static_cast<std::size_t>(rank)]), 3) +
                           " times as long because of it (" + std::string(observe::to_string(slow_.cause(rank))) + ")";
  if (rank == rank_) {
    throw Error(ErrorCode::expelled, text + "; the others go on without this process, which must end");
  }
  log(rank_ == (rank == 0 ? 1 : 0) ? LogLevel::warning : LogLevel::debug, text);
}

observe::SlowState SlowJudge::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

}  // namespace gradwire::session
