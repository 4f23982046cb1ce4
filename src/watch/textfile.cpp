#include "watch/textfile.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

namespace gradwire::watch {
namespace {

constexpr std::string_view kSuffix = ".prom";

bool is_textfile(std::string_view name) {
  if (name.starts_with(".") && name.ends_with(kUnfinished)) {  // ".NAME.PROCESS.new", of a process that was killed
    name.remove_prefix(1);
    name = name.substr(0, name.rfind(kSuffix) == std::string_view::npos ? 0 : name.rfind(kSuffix) + kSuffix.size());
  }
  return is_rank_file(name, kSuffix);
}

// Whether the file is this user's own, and was not written for a day. A link is none.
bool is_old(const std::filesystem::path& file) {
  constexpr std::time_t kDay = std::time_t{24} * 60 * 60;
  struct stat status {};
  return ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == ::geteuid() &&
         status.st_mtime < std::time(nullptr) - kDay;
}

// Whether the head of the text says that a rank on the host wrote it.
bool names_host(const std::filesystem::path& file, const std::string& host) {
  constexpr std::size_t kHead = 4096;
  std::string head(kHead, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  const std::size_t begin = head.find("\ngradwire_info{");
  const std::string line = begin == std::string::npos ? "" : head.substr(begin + 1, head.find('\n', begin + 1) - begin);
  return line.find(",host=\"" + host + "\"") != std::string::npos;
}

}  // namespace

std::string rank_file_name(const std::string& part, int rank, const std::string& job, std::string_view suffix) {
  return "gradwire-" + part + "-rank-" + std::to_string(rank) + (job.empty() ? "" : "-job-" + job) +
         std::string(suffix);
}

bool is_rank_file(std::string_view name, std::string_view suffix) {
  return name.starts_with("gradwire-") && name.ends_with(suffix) && name.find("-rank-") != std::string_view::npos;
}

std::string file_name(const std::string& part, int rank, const std::string& job) {
  return rank_file_name(part, rank, job, kSuffix);
}

void remove_old_textfiles(const std::filesystem::path& directory, const std::string& host) {
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(directory, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    const std::filesystem::path& file = entry->path();
    if (is_textfile(file.filename().string()) && is_old(file) && names_host(file, host)) {
      std::error_code ignored;
      std::filesystem::remove(file, ignored);
    }
  }
}

bool Turns::is_due(const Totals& totals) {
  const std::uint64_t now = totals.now();
  if (totals.aggregate().ranks().empty() || (!totals.reader().ended && next_ && now < *next_)) {
    return false;
  }
  next_ = now + interval_;
  return true;
}

TextfileWriter::TextfileWriter(const TextfileOptions& options)
    : files_(options.directory, "metrics", "GRADWIRE_METRICS", options.warn), turns_(options.interval) {}

void TextfileWriter::take(Totals& totals) {
  if (!turns_.is_due(totals)) {
    return;
  }
  files_.attempt([&] {
    if (!std::exchange(removed_old_, true)) {
      remove_old_textfiles(files_.directory(), totals.reader().host);
    }
    const std::vector<ReplacedCalls> replaced = totals.replaced();
    for (const auto& [rank, sums] : totals.aggregate().ranks()) {
      files_.write(
          file_name(totals.part(), rank, totals.job()),
          to_text(families(sums, totals.reader(), replaced), labels_of_rank(totals.part(), rank, totals.job())),
          Readers::everybody);  // node_exporter is another user
    }
  });
}

}  // namespace gradwire::watch
