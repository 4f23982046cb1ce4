#include "watch/http.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/current_error.hpp"
#include "gradwire/error.hpp"
#include "watch/metrics_page.hpp"

namespace gradwire::watch {

// Shared by the thread that reads events and those of the server. The server's threads may use it until the process
// ends, so it is never destroyed once there is a server.
struct HttpListener::Served {
  explicit Served(std::shared_ptr<Totals> of) : totals(std::move(of)) {}

  const std::shared_ptr<Totals> totals;
  std::timed_mutex asking;         // held while a page is made; guards the members below
  std::atomic<bool> ended{false};  // the job's own objects are about to be destroyed

  static void collect(void* context, void* page, AddFamily add) noexcept {
    auto& self = *static_cast<Served*>(context);
    try {
      const std::lock_guard lock(self.asking);
      if (!self.ended) {
        hand_over(self.totals->page(), page, add);
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): without memory the page has the families so far
    }
  }
};

namespace {

// Objects that are kept for ever; the list is never destroyed.
std::vector<std::shared_ptr<void>>& kept() {
  static auto* const all = new std::vector<std::shared_ptr<void>>;  // NOLINT(cppcoreguidelines-owning-memory)
  return *all;
}

// Ranks that are threads of one process share the port of rank 0.
std::optional<int> rank_of(const Aggregate& aggregate) {
  if (aggregate.home() || aggregate.ranks().empty()) {
    return aggregate.home();
  }
  return 0;
}

}  // namespace

HttpListener::HttpListener(HttpOptions options, std::shared_ptr<Totals> totals, const ExportTable& library)
    : options_(std::move(options)), library_(library), served_(std::make_shared<Served>(std::move(totals))) {}

void HttpListener::take(Totals& totals) {
  if (totals.reader().ended) {
    // Waits for a page in the making, but not for ever, since the process ends.
    const std::unique_lock lock(served_->asking, std::chrono::seconds(1));
    served_->ended = true;
    return;
  }
  const std::optional<int> rank = rank_of(totals.aggregate());
  if (!listens_ && rank) {
    listens_ = true;
    listen(*rank);
  }
}

void HttpListener::listen(int rank) {
  std::string address = options_.target.address + ":" + std::to_string(options_.target.port);
  std::array<char, 256> why{};
  int failed = 0;
  try {
    address = options_.target.for_rank(rank);
    kept().push_back(served_);  // also kept, a few bytes, where the server did not start
    failed = library_.serve(address.c_str(), &Served::collect, served_.get(), why.data(), why.size());
    if (failed == 0) {
      return;
    }
    throw Error(ErrorCode::invalid_argument, why.data());
  } catch (...) {
    given_up_ = true;
    const std::string fix =
        failed == kAddress
            ? "write an IPv4 address of this machine, such as 127.0.0.1, or 0.0.0.0 for all, or file:DIRECTORY"
        : options_.target.add_rank ? "write another port"
                                   : "write another port, or +rank behind it where ranks share a host";
    options_.warn("metrics: cannot listen on " + address + ": " + current_error().what() + "; " + fix +
                  " (GRADWIRE_METRICS). The job goes on without");
  }
}

}  // namespace gradwire::watch
