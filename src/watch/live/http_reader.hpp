// The ranks of a job that serve their metrics over HTTP, as a snapshot.
#pragma once

#include <string>

#include "base/metrics_target.hpp"
#include "watch/live/view.hpp"

namespace gradwire::watch::live {

/// Asks rank 0, whose answer says how many ranks there are, and then the others if each has a port of its own.
class HttpReader {
 public:
  /// `token` is sent with each request, unless it is empty.
  HttpReader(MetricsTarget::Http target, std::string token) : target_(std::move(target)), token_(std::move(token)) {}

  /// Never fails: a rank that does not answer is in the snapshot, with the reason.
  [[nodiscard]] FolderSnapshot read() const;

 private:
  MetricsTarget::Http target_;
  std::string token_;
};

}  // namespace gradwire::watch::live
