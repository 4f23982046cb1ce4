// Metrics of this process over HTTP, served by libgradwire_export.so.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/metrics_target.hpp"
#include "watch/http_table.hpp"
#include "watch/served_totals.hpp"

namespace gradwire::watch {

struct HttpOptions {
  MetricsTarget::Http target;
  std::string token = {};  // requests must have it; empty: they need none
  std::function<void(const std::string&)> warn;
};

/// Listens from the first round that knows the rank until the process ends; a page has the values of the last round. An
/// address that cannot be used is reported once.
class HttpListener final : public Subscriber {
 public:
  HttpListener(HttpOptions options, std::shared_ptr<Totals> totals, const ExportTable& library);
  void take(Totals& totals) override;
  [[nodiscard]] bool done() const noexcept override { return given_up_; }

 private:
  void listen(int rank);

  HttpOptions options_;
  const ExportTable& library_;
  std::shared_ptr<ServedTotals> served_;
  bool listens_ = false;
  bool given_up_ = false;
};

}  // namespace gradwire::watch
