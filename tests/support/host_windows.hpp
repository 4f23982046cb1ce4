// What a HostDevice says and does where ranks open windows, and how kernels over these run. A test sets it, since only
// some programs have such kernels.
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
  std::shared_ptr<WindowMemory> memory;  // of all ranks; null: the device has no windows
  std::function<void(const kernels::WindowJob&)> all_reduce;
  std::function<void(const kernels::WindowPlaces&)> check;
  std::string host = "a host";
  std::string gpu;                                       // empty: the rank has one of its own
  std::uint32_t resident = 2;                            // blocks that the GPU can run at once
  std::shared_ptr<std::atomic<std::uint32_t>> reserved;  // of these, by the rank's process; null: by this device alone
  std::string broken;                                    // what fails on the rank before windows are mapped
  std::string refuses;                                   // why the rank does not map windows
  bool loses_a_word = false;                             // of those that others write to test its window
  std::uint64_t openings = 0;                            // so far
  std::uint64_t kernels = 0;                             // of all-reduces that were enqueued
  std::uint64_t in_captures = 0;                         // of these, those that were captured
};

}  // namespace gradwire::test
