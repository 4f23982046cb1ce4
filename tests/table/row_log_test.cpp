// Tests the log of rows in a scratch file, with a disk that fails.
#include "table/row_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "tests/support/error_of.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::table {
namespace {

using ::testing::HasSubstr;

/// A disk on which requests fail.
struct Disk {
  std::atomic<int> read_error = 0;   // an errno
  std::atomic<int> write_error = 0;  // an errno
};

class FailingRequests final : public memory::FileRequests {
 public:
  FailingRequests(std::unique_ptr<memory::FileRequests> inner, std::shared_ptr<Disk> disk)
      : inner_(std::move(inner)), disk_(std::move(disk)) {}
  bool begin(const memory::FileRequest& request) override {
    if (const int error = request.writes ? disk_->write_error : disk_->read_error) {
      failed_.push_back({request.slot, -error});
      return true;
    }
    return inner_->begin(request);
  }
  void collect(std::vector<memory::FileResult>& ended, bool waits) override {
    if (failed_.empty()) {
      inner_->collect(ended, waits);
      return;
    }
    ended.insert(ended.end(), failed_.begin(), failed_.end());
    failed_.clear();
  }

 private:
  std::unique_ptr<memory::FileRequests> inner_;
  std::shared_ptr<Disk> disk_;
  std::vector<memory::FileResult> failed_;
};

class FailingLog : public testing::Test {
 protected:
  FailingLog() {
    log_->add_user();
    while (log_->statistics().written < 8 * log_->batch() * memory::kFileUnit) {
      append();
    }
  }
  void append() {
    const std::vector<float> row(64, static_cast<float>(rows_));
    static_cast<void>(log_->append({.id = rows_, .version = 1, .nonfinite = 0}, row.data()));
    ++rows_;
  }

  test::ScratchFolder folder_;
  std::shared_ptr<Disk> disk_ = std::make_shared<Disk>();
  std::shared_ptr<RowLog> log_ = std::make_shared<RowLog>(RowLog::Options{
      .table = "users",
      .folder = folder_.path(),
      .floats = 64,
      .memory = 1 << 20,
      .requests = [this](int descriptor, std::uint32_t in_flight) {
        return std::make_unique<FailingRequests>(memory::make_file_threads(descriptor, in_flight), disk_);
      }});
  std::uint64_t rows_ = 0;
};

TEST_F(FailingLog, AReadErrorIsNamedAndLosesNothing) {
  const std::vector<RowLog::Record> records{0, 5, 200};
  disk_->read_error = EIO;
  const std::unique_ptr<RowFetch> failing = log_->fetch(records);
  const Error error = test::error_of([&] { failing->wait(); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_THAT(error.what(), HasSubstr("table \"users\""));
  EXPECT_THAT(error.what(), HasSubstr(folder_.path().string()));
  disk_->read_error = 0;
  const std::unique_ptr<RowFetch> fetch = log_->fetch(records);
  fetch->wait();
  for (const RowLog::Record record : records) {
    const RecordView row = fetch->find(record);
    ASSERT_NE(row.head, nullptr);
    EXPECT_EQ(row.floats[7], static_cast<float>(row.head->id));
  }
}

// The next record lies in the same page, whose copy was made before it.
TEST_F(FailingLog, ACopyHasNothingOfWhatIsAppendedLater) {
  const std::vector<float> row(64, 1);
  int compared = 0;
  for (int i = 0; i < 3; ++i) {
    const RowLog::Record first = log_->append({.id = 7, .version = 1, .nonfinite = 0}, row.data());
    const std::unique_ptr<RowFetch> fetch = log_->fetch(std::span(&first, 1));
    fetch->wait();
    EXPECT_EQ(fetch->find(first).head->id, 7U);
    const RowLog::Record later = log_->append({.id = 0, .version = 1, .nonfinite = 0}, row.data());
    if (const RecordView view = fetch->find(later); view.head != nullptr) {
      EXPECT_NE(view.head->id, 0U);
      ++compared;
    }
  }
  EXPECT_GE(compared, 1);
}

TEST_F(FailingLog, AFullDiskIsNamedFromThenOn) {
  disk_->write_error = ENOSPC;
  const Error error = test::error_of([&] {
    for (int i = 0; i < 100000; ++i) {
      append();
    }
  });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.what(), HasSubstr("table \"users\""));
  EXPECT_THAT(error.what(), HasSubstr("cannot be written"));
  disk_->write_error = 0;
  EXPECT_EQ(test::error_of([&] { append(); }).what(), std::string(error.what())) << "rows of a failed write are lost";
  const std::unique_ptr<RowFetch> fetch = log_->fetch(std::vector<RowLog::Record>{3});
  fetch->wait();
  EXPECT_EQ(fetch->find(3).floats[0], static_cast<float>(fetch->find(3).head->id));
}

}  // namespace
}  // namespace gradwire::table
