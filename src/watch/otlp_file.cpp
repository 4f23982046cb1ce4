#include "watch/otlp_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "watch/host.hpp"
#include "watch/otlp.hpp"

namespace gradwire::watch {

std::string otlp_file_name(const std::string& part, int rank, const std::string& job) {
  return rank_file_name(part, rank, job, ".otlp.jsonl");
}

void append_line(const std::filesystem::path& file, const std::string& line) {
  // A collector is another user, as node_exporter is.
  Descriptor descriptor(open_to_write(file, O_WRONLY | O_APPEND | O_NONBLOCK, Readers::everybody));
  if (descriptor.get() < 0) {
    fail_at(file, "make", errno);
  }
  struct stat status {};
  if (::fstat(descriptor.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 1) {
    fail_at(file, "append to", EMLINK);  // under another name it may be another user's file
  }
  const off_t before = ::lseek(descriptor.get(), 0, SEEK_END);
  if (before < 0) {
    fail_at(file, "append to", errno);  // a pipe
  }
  int problem = write_all(descriptor.get(), line) ? 0 : errno;
  if (problem != 0 && ::ftruncate(descriptor.get(), before) != 0) {
    problem = errno;
  }
  if (!descriptor.close() && problem == 0) {
    problem = errno;
  }
  if (problem != 0) {
    fail_at(file, "append to", problem);
  }
}

OtlpWriter::OtlpWriter(const OtlpOptions& options)
    : files_(options.directory, "metrics", "GRADWIRE_METRICS", options.warn),
      turns_(options.interval),
      most_bytes_(options.most_bytes),
      started_(realtime_nanoseconds()) {}

void OtlpWriter::take(Totals& totals) {
  if (!turns_.is_due(totals)) {
    return;
  }
  files_.attempt([&] {
    const std::vector<ReplacedCalls> replaced = totals.replaced();
    for (const auto& [rank, sums] : totals.aggregate().ranks()) {
      append(otlp_file_name(totals.part(), rank, totals.job()), to_otlp(families(sums, totals.reader(), replaced),
                                                                        {.part = totals.part(),
                                                                         .rank = rank,
                                                                         .host = totals.reader().host,
                                                                         .process = static_cast<int>(::getpid()),
                                                                         .started = started_,
                                                                         .job = totals.job()},
                                                                        realtime_nanoseconds()));
    }
  });
}

// Appends to the process's own file. A file of another process is renamed first, since it may end in the middle of a
// line.
void OtlpWriter::append(const std::string& name, const std::string& line) {
  const std::filesystem::path file = files_.directory() / name;
  std::error_code error;
  const bool is_link = std::filesystem::is_symlink(std::filesystem::symlink_status(file, error));
  const std::uintmax_t size = is_link ? 0 : std::filesystem::file_size(file, error);  // append_line() refuses a link
  if (!error && size > 0 && (!begun_.contains(name) || size + line.size() > most_bytes_)) {
    std::filesystem::rename(file, file.string() + ".1", error);
    if (error) {
      fail_at(file, "rename", error.value());
    }
  }
  append_line(file, line);
  begun_.insert(name);
}

}  // namespace gradwire::watch
