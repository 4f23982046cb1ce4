#include "bench/support/report.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bench_revision.hpp"
#include "gradwire/version.hpp"

namespace gradwire::bench {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

// Returns the widest vector unit, since codec speed follows it.
std::string cpu_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") != 0) {
    return "avx512";
  }
  return __builtin_cpu_supports("avx2") != 0 ? "avx2" : "sse2";
#elif defined(__aarch64__)
  return "neon";
#else
  return "unknown";
#endif
}

std::string now() {
  char text[32];
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

Json describe_machine(const std::string& mpi) {
  utsname system{};
  uname(&system);
  const auto pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  Json machine;
  machine["cpu"] = cpu_model();
  machine["vectors"] = cpu_vectors();
  machine["cores"] = sysconf(_SC_NPROCESSORS_ONLN);
  machine["memory_gib"] = std::round(pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30));
  machine["kernel"] = std::string(system.sysname) + " " + system.release;
#if defined(__clang__)
  machine["compiler"] = std::string("clang ") + __clang_version__;
#else
  machine["compiler"] = std::string("g++ ") + __VERSION__;
#endif
  machine["build"] = GRADWIRE_BUILD_TYPE;
  if (!mpi.empty()) {
    machine["mpi"] = mpi;
  }
  machine["gradwire"] = std::string(kVersion);
  machine["revision"] = kRevision;
  machine["date"] = now();
  return machine;
}

Json make_report(const std::string& schema, const std::string& mpi) {
  return Json{{"schema", schema}, {"machine", describe_machine(mpi)}, {"rows", Json::array()}};
}

Json number_or_null(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }

// Writes the file whole or not at all, and never through a link: replaces an existing file. Writes directly to a
// device.
void write_text(const std::string& file, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code failed;
  const fs::file_type type = fs::symlink_status(file, failed).type();
  const bool device = type == fs::file_type::character || type == fs::file_type::fifo || file.starts_with("/dev/");
  const std::string name = device ? file : file + "." + std::to_string(::getpid()) + ".part";
  if (!device) {
    fs::remove(name, failed);
  }
  std::FILE* const out = std::fopen(name.c_str(), device ? "we" : "wxe");  // x: does not follow a link
  const bool written = out != nullptr && std::fwrite(text.data(), 1, text.size(), out) == text.size();
  const bool whole = out != nullptr && std::fclose(out) == 0 && written;
  failed.clear();
  if (whole && !device) {
    fs::rename(name, file, failed);
  }
  if (!whole || failed) {
    throw std::runtime_error("cannot write \"" + file + "\"; does its folder exist and is it writable?");
  }
}

void write_report(const std::string& file, const Json& report) { write_text(file, report.dump(2) + "\n"); }

void publish(const std::string& head, const TextTable& table, const ResultFiles& files, const Json& report) {
  std::fputs((head.substr(0, head.find_last_not_of('\n') + 1) + "\n\n" + table.to_text()).c_str(), stdout);
  if (!files.json.empty()) {
    write_report(files.json, report);
  }
  if (!files.markdown.empty()) {
    write_text(files.markdown, to_document(head, table));
  }
}

}  // namespace gradwire::bench
