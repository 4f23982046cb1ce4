// Metrics of this process over HTTP, served by libgradwire_export.so.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics_target.hpp"
#include "export/aggregate.hpp"
#include "export/http_table.hpp"
#include "observe/collector.hpp"

namespace gradwire::metrics {

struct HttpOptions {
  MetricsTarget::Http target;
  std::string part = "library";                               // as TextfileOptions
  std::function<std::optional<int>()> rank = {};              // likewise
  std::function<std::vector<ReplacedCalls>()> replaced = {};  // likewise; on the server's thread, one at a time
  std::function<void(const std::string&)> warn;
};

/// Listens from the first round on that knows the rank, until the process ends; a page says what was known at the last
/// round. What cannot be listened on is told once.
class HttpSink final : public observe::Sink {
 public:
  HttpSink(HttpOptions options, const ExportTable& library);
  void take(const observe::Round& round) override;
  [[nodiscard]] bool done() const noexcept override { return given_up_; }

 private:
  struct Served;

  void listen(int rank);

  HttpOptions options_;
  const ExportTable& library_;
  std::shared_ptr<Served> served_;
  bool listens_ = false;
  bool given_up_ = false;
};

}  // namespace gradwire::metrics
