// The system's pages, counted, with an end that a test may set.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "memory/page_source.hpp"

namespace gradwire::memory {

class CountedPages final : public PageSource {
 public:
  ~CountedPages() override { EXPECT_EQ(mapped.load(), 0U) << "bytes that the pool has not given back"; }

  [[nodiscard]] std::byte* map(std::size_t bytes, HugePages huge) noexcept override {
    if (mapped + bytes > most) {
      return nullptr;
    }
    std::byte* const memory = pages_.map(bytes, huge);
    mapped += memory == nullptr ? 0 : bytes;
    ++maps;
    return memory;
  }
  void unmap(std::byte* memory, std::size_t bytes) noexcept override {
    mapped -= bytes;
    pages_.unmap(memory, bytes);
  }
  [[nodiscard]] std::string why() const override { return "the test has no more"; }
  [[nodiscard]] HugePages given() const noexcept override { return pages_.given(); }

  std::atomic<std::uint64_t> mapped = 0;
  std::atomic<std::uint64_t> most = ~std::uint64_t{0};
  std::atomic<std::uint64_t> maps = 0;

 private:
  SystemPages pages_;
};

}  // namespace gradwire::memory
