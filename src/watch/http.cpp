#include "watch/http.hpp"

#include <array>
#include <span>
#include <utility>

#include "base/current_error.hpp"
#include "gradwire/error.hpp"
#include "watch/metrics_page.hpp"

namespace gradwire::watch {

namespace {

void collect(void* context, void* page, AddFamily add) noexcept {
  try {
    static_cast<ServedTotals*>(context)->with_page([&](std::span<const Family> all) { hand_over(all, page, add); });
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory the page has the families so far
  }
}

}  // namespace

HttpListener::HttpListener(HttpOptions options, std::shared_ptr<Totals> totals, const ExportTable& library)
    : options_(std::move(options)), library_(library), served_(std::make_shared<ServedTotals>(std::move(totals))) {}

void HttpListener::take(Totals& totals) {
  if (totals.reader().ended) {
    served_->end();
    return;
  }
  const std::optional<int> rank = ServedTotals::rank_of(totals.aggregate());
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
    ServedTotals::keep(served_);  // also kept, a few bytes, where the server did not start
    failed = library_.serve(address.c_str(), options_.token.c_str(), &collect, served_.get(), why.data(), why.size());
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
