// How a HostDevice answers when ranks open windows, and the kernels that it runs over them. A test fills this in, since
// only some programs have such kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kernels/device/window_job.hpp"
#include "tests/support/fake_windows.hpp"

namespace gradwire::test {

struct HostWindows {
  std::shared_ptr<WindowMemory> memory;  // shared by all ranks; null: the device has no windows
  std::function<void(const kernels::WindowJob&)> all_reduce;
  std::function<void(const kernels::WindowPlaces&)> check;
  std::string host = "a host";
  std::string gpu;                                       // empty: the rank has one of its own
  std::uint32_t resident = 2;                            // blocks that the GPU can run at once
  std::shared_ptr<std::atomic<std::uint32_t>> reserved;  // blocks that the process uses; null: counted by this device
  std::string broken;                                    // error of the rank before windows are mapped; empty: none
  std::string refuses;                                   // the rank's reason not to map windows; empty: it maps them
  bool loses_a_word = false;                             // a word is lost that others write to test the rank's window
  std::uint64_t openings = 0;                            // calls of open_windows()
  std::uint64_t kernels = 0;                             // all-reduces that were enqueued
  std::uint64_t in_captures = 0;                         // number of these that were captured
};

}  // namespace gradwire::test
