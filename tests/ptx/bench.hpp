// Small kernels on the interpreter's machine, without its runtime.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/ptx/machine.hpp"

namespace gradwire::ptx {

inline std::uint64_t no_variables(std::size_t, std::string_view) { return 0; }

// A kernel `test(words, other)` whose body has these registers.
inline std::string kernel(const std::string& body) {
  return ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry test(\n.param .u64 words,\n.param .u64 "
         "other\n)\n{\n"
         ".reg .pred %p<8>;\n.reg .b16 %rs<8>;\n.reg .b32 %r<32>;\n.reg .f32 %f<8>;\n.reg .b64 %rd<16>;\n"
         ".shared .align 16 .b8 table[4096];\n"
         "ld.param.u64 %rd1, [words];\nld.param.u64 %rd2, [other];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n"
         "mul.wide.u32 %rd3, %r1, 4;\nadd.s64 %rd4, %rd1, %rd3;\n"  // the thread's word
         + body + "\nret;\n}\n";
}

struct Shape {
  std::uint32_t blocks = 1, threads = 64;
};

// A device with two arrays of words; the first is of 0, 1, 2 and so on.
class Bench {
 public:
  explicit Bench(Schedule schedule = Schedule::ascending) : Bench(Settings{schedule, 7, 200'000}) {}
  explicit Bench(const Settings& settings) : machine_(settings, memory_, order_) {
    std::iota(words.begin(), words.end(), 0U);
    memory_.add(words.data(), words.size() * 4, "words", true);
    memory_.add(other.data(), other.size() * 4, "other", false);
  }

  std::shared_ptr<Grid> begin(const std::string& body, Shape shape, std::uint32_t stream) {
    modules_.push_back(std::make_unique<Module>(kernel(body), no_variables));
    Launch launch;
    launch.kernel = &modules_.back()->kernel("test");
    launch.blocks[0] = shape.blocks;
    launch.threads[0] = shape.threads;
    launch.parameters.resize(16);
    const void* const pointers[] = {words.data(), other.data()};
    std::memcpy(launch.parameters.data(), pointers, sizeof pointers);
    clocks_.resize(std::max<std::size_t>(clocks_.size(), stream + 1));
    return machine_.begin(std::move(launch),
                          order_.add_activity(stream, clocks_[stream], "grid of stream " + std::to_string(stream)));
  }

  // Runs grids in turn; returns the text of a finding, or nothing.
  std::string run(const std::vector<std::shared_ptr<Grid>>& grids) {
    try {
      std::vector<bool> ended(grids.size());
      while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
        for (std::size_t i = 0; i < grids.size(); ++i) {
          ended[i] = ended[i] || machine_.run_slice(*grids[i]);
        }
      }
    } catch (const Finding& finding) {
      return finding.what();
    }
    return "";
  }
  std::string run(const std::string& body, Shape shape = {}) {
    try {
      return run({begin(body, shape, 0)});
    } catch (const Finding& finding) {
      return finding.what();
    }
  }

  Memory& memory() { return memory_; }
  std::vector<std::uint32_t> words = std::vector<std::uint32_t>(256);
  std::vector<std::uint32_t> other = std::vector<std::uint32_t>(256);

 private:
  Memory memory_;
  Order order_;
  Machine machine_;
  std::vector<Clock> clocks_;
  std::vector<std::unique_ptr<Module>> modules_;
};

}  // namespace gradwire::ptx
