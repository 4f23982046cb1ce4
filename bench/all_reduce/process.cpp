#include "bench/all_reduce/process.hpp"

#include <malloc.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

namespace gradwire::bench {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// Returns a field of /proc/self/status, in bytes.
double status_bytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field + ":", 0) == 0) {
      return std::stod(line.substr(field.size() + 1)) * 1024;
    }
  }
  return NAN;
}

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double interface_bytes_sent(const std::string& interface) {
  std::ifstream file("/proc/self/net/dev");
  for (std::string line; !interface.empty() && std::getline(file, line);) {
    const auto colon = line.find(':');
    const auto name = line.find_first_not_of(' ');
    if (colon == std::string::npos || line.substr(name, colon - name) != interface) {
      continue;
    }
    std::istringstream fields(line.substr(colon + 1));
    double value = 0;
    for (int field = 0; field < 9; ++field) {  // eight fields about receiving, then bytes sent
      fields >> value;
    }
    return value;
  }
  return NAN;
}

PeakMemory::PeakMemory() {
  malloc_trim(0);                               // memory that an earlier call freed must not hide what this one takes
  std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
  start_ = status_bytes("VmRSS");
}

double PeakMemory::bytes() const { return std::max(0.0, status_bytes("VmHWM") - start_); }

}  // namespace gradwire::bench
