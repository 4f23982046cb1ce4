// Runs tests of scratch files over both backends, and changes how requests of one end.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "memory/file_requests.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::memory {

/// The fixture of tests that run by io_uring and by threads, with a folder for the files. Tests by io_uring are skipped
/// where the system does not allow it.
class OverFileBackends : public ::testing::TestWithParam<FileBackend> {
 protected:
  void SetUp() override {
    if (GetParam() == FileBackend::io_uring && make_ring(STDIN_FILENO, 1) == nullptr) {
      GTEST_SKIP() << "this system does not allow io_uring";
    }
  }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

 private:
  test::ScratchFolder folder_;
};

inline const auto kFileBackends = ::testing::Values(FileBackend::io_uring, FileBackend::threads);
inline std::string backend_name(const ::testing::TestParamInfo<FileBackend>& backend) {
  return std::string(to_string(backend.param));
}

/// Hands requests on, and changes how some of them end.
class TamperedRequests final : public FileRequests {
 public:
  using Change = std::function<void(const FileRequest& request, FileResult& result)>;
  TamperedRequests(std::unique_ptr<FileRequests> below, Change change)
      : below_(std::move(below)), change_(std::move(change)) {}

  bool begin(const FileRequest& request) override {
    requests_[request.slot] = request;
    return below_->begin(request);
  }
  void collect(std::vector<FileResult>& ended, bool waits) override {
    const std::size_t before = ended.size();
    below_->collect(ended, waits);
    for (std::size_t i = before; i < ended.size(); ++i) {
      change_(requests_.at(ended[i].slot), ended[i]);
    }
  }

 private:
  std::unique_ptr<FileRequests> below_;
  Change change_;
  std::map<std::uint32_t, FileRequest> requests_;
};

inline MakeFileRequests tampered_threads(TamperedRequests::Change change) {
  return [change = std::move(change)](int descriptor, std::uint32_t in_flight) {
    return std::make_unique<TamperedRequests>(make_file_threads(descriptor, in_flight), change);
  };
}

}  // namespace gradwire::memory
