#include "plugins/mpi_preload/consent.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/mutex.hpp"
#include "drop_in/configuration.hpp"
#include "plan/hash.hpp"
#include "plugins/mpi_preload/process.hpp"
#include "transport/backoff.hpp"

namespace gradwire::mpi_preload {
namespace {

using Clock = transport::Backoff::Clock;

// The job's own call would poll here; a rank that is late for longer may be writing a checkpoint.
constexpr std::chrono::milliseconds kPolls{100};
constexpr std::chrono::milliseconds kNoticeLimit{20};
constexpr std::chrono::milliseconds kUntilTold{2000};  // after this a rank tells the others that it waits

// The buffers that MPI uses until the all-reduce ends.
struct Exchange {
  Terms mine;
  Terms all;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Ranks that wait for long tell each other where, so that each can name the missing ranks. The communicator has no
// number yet, so it is identified by its ranks.
class Board final : public transport::NoticeListener {
 public:
  explicit Board(const Waiting& waiting) : waiting_(waiting) {
    constexpr std::uint64_t kNoNumber = std::uint64_t{1} << 63;  // numbers of communicators never have this bit
    key_ = plan::hash_of(waiting.ranks.data(), waiting.ranks.size() * sizeof(int), 0) | kNoNumber;
  }
  ~Board() override {
    if (pinned_) {
      process().world->stop_listening(key_);
      notify_ranks("");
    }
  }

  void pin() {
    if (!std::exchange(pinned_, true)) {
      process().world->listen(key_, *this);
      notify_ranks(waiting_.call);
    }
  }
  void hear(int from, std::span<const char> bytes) noexcept override {
    try {
      const MutexLock lock(mutex_);
      if (bytes.empty() || bytes[0] == '\0') {
        calls_.erase(from);
      } else {
        calls_[from] = std::string(bytes.begin(), bytes.end());
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for a line
    }
  }
  void hear_of_end(int) noexcept override {}

  [[nodiscard]] std::string line(std::chrono::seconds waited) {
    const MutexLock lock(mutex_);
    std::vector<int> absent;
    std::string others;
    for (const int rank : waiting_.ranks) {
      const auto found = calls_.find(rank);
      if (rank != process().world->rank() && found == calls_.end()) {
        absent.push_back(rank);
      } else if (found != calls_.end() && found->second != waiting_.call) {
        others += "; rank " + std::to_string(rank) + " is in " + found->second;
      }
    }
    return waiting_.call + " on a communicator of " + std::to_string(waiting_.ranks.size()) + " ranks has waited for " +
           std::to_string(waited.count()) + " s, as it would without gradwire: " +
           (absent.empty() ? "every rank is in a call" : "nothing was heard of " + drop_in::name_ranks(absent)) +
           " (ranks of MPI_COMM_WORLD)" + others;
  }

 private:
  void notify_ranks(const std::string& call) const noexcept {
    const std::size_t bytes = call.empty() ? 1 : call.size();  // one zero byte: this rank no longer waits
    process().world->notify(key_, waiting_.ranks, {call.c_str(), bytes}, kNoticeLimit);
  }

  const Waiting& waiting_;
  std::uint64_t key_ = 0;
  bool pinned_ = false;
  Mutex mutex_;
  std::map<int, std::string> calls_ GUARDED_BY(mutex_);  // calls of other waiting ranks
};

}  // namespace

int agree_on_terms(MPI_Comm comm, const Terms& mine, const Waiting& waiting, Terms& all) {
  auto exchange = std::make_unique<Exchange>();
  exchange->mine = mine;
  constexpr int kWords = sizeof(Terms) / sizeof(std::uint64_t);
  int code = PMPI_Iallreduce(&exchange->mine, &exchange->all, kWords, MPI_UINT64_T, MPI_BAND, comm, &exchange->request);
  if (code != MPI_SUCCESS) {
    return code;
  }
  transport::Backoff backoff(kPolls);
  backoff.posted();
  Board board(waiting);
  const auto begun = Clock::now();
  const auto interval = process().configuration.warn_after;
  auto next = begun + interval;
  const auto told = begun + std::min(kUntilTold, interval / 2);
  for (;;) {
    int done = 0;
    code = PMPI_Test(&exchange->request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
      static_cast<void>(exchange.release());  // MPI may still use it
      return code;
    }
    if (done != 0) {
      all = exchange->all;
      return MPI_SUCCESS;
    }
    process().world->poll();
    const auto now = Clock::now();
    if (now >= told) {
      board.pin();
    }
    if (now >= next) {
      next = now + interval;
      if (!process().configuration.quiet) {
        tell(board.line(std::chrono::duration_cast<std::chrono::seconds>(now - begun)));
      }
    }
    backoff.pause(std::min(next, now < told ? told : next));
  }
}

}  // namespace gradwire::mpi_preload
