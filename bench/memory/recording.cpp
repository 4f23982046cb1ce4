#include "bench/memory/recording.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "bench/memory/process_status.hpp"
#include "gradwire/session.hpp"
#include "gradwire/transport.hpp"
#include "memory/process_pool.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

void train(std::shared_ptr<Transport> transport) {
  Session session(std::move(transport), Policy::parse("floor = 0\n[defaults]\ncodec = \"int4\"\n"));
  std::vector<std::vector<float>> gradients;
  std::vector<TensorId> ids;
  for (int layer = 0; layer < 8; ++layer) {  // as a small transformer has them
    for (const std::size_t count : {512 * 768, 256 * 256, 256 * 1024, 1024, 256, 256}) {
      gradients.emplace_back(count, 0.25F);
    }
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    ids.push_back(session.add("t" + std::to_string(i), view(gradients[i].data(), gradients[i].size())));
  }
  for (int step = 0; step < 60; ++step) {
    for (std::size_t i = gradients.size(); i-- > 0;) {
      session.ready(ids[i]);
    }
    session.finish();
  }
}

void touch(std::byte* memory, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += memory::kPageBytes) {
    static_cast<volatile std::byte*>(memory)[at] = std::byte{1};
  }
}

template <typename Take, typename Free>
Played play_by(const MemoryRecording& recording, Take take, Free free, bool touches, int rounds) {
  std::uint32_t slots = 0;
  std::size_t pairs = 0;
  for (const MemoryEvent& event : recording) {
    slots = std::max(slots, event.slot + 1);
    pairs += event.bytes > 0 ? 1 : 0;
  }
  struct Held {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Held> held(slots);
  const std::uint64_t before = status_bytes("VmRSS:");
  const auto begin = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    for (const MemoryEvent& event : recording) {
      Held& slot = held[event.slot];
      if (event.bytes == 0) {
        free(slot.memory, slot.bytes);
        continue;
      }
      slot = {take(event.bytes), event.bytes};
      if (touches) {
        touch(slot.memory, slot.bytes);
      }
    }
  }
  const std::chrono::duration<double, std::nano> time = Clock::now() - begin;
  const std::uint64_t peak = status_bytes("VmHWM:");
  return {time.count() / rounds / static_cast<double>(pairs), peak - std::min(peak, before)};
}

}  // namespace

MemoryRecording record_training() {
  MemoryRecording recording;
  std::map<const std::byte*, MemoryEvent> live;
  std::vector<std::uint32_t> unused;
  std::uint32_t slots = 0;
  auto world = make_inproc_world(2);
  const auto watch = [&](const memory::PoolEvent& event) {
    if (event.taken) {
      if (unused.empty()) {
        unused.push_back(slots++);
      }
      const MemoryEvent taken{unused.back(), static_cast<std::uint32_t>(event.bytes)};
      unused.pop_back();
      live[event.memory] = taken;
      recording.push_back(taken);
    } else if (const auto found = live.find(event.memory); found != live.end()) {
      recording.push_back({found->second.slot, 0});
      unused.push_back(found->second.slot);
      live.erase(found);
    }
  };
  std::vector<std::thread> threads;
  memory::page_pool().watch(watch);
  for (std::shared_ptr<Transport>& transport : world) {
    threads.emplace_back([&transport] { train(std::move(transport)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  memory::page_pool().watch({});
  for (const auto& [memory, taken] : live) {
    recording.push_back({taken.slot, 0});
  }
  return recording;
}

MemoryRecording one_frame(std::uint32_t bytes, std::size_t pairs) {
  MemoryRecording recording;
  for (std::size_t i = 0; i < pairs; ++i) {
    recording.push_back({0, bytes});
    recording.push_back({0, 0});
  }
  return recording;
}

MemoryRecording random_frames(std::size_t pairs) {
  constexpr std::uint32_t kLive = 16;
  constexpr std::uint32_t kLeast = 56 * 1024;
  constexpr std::uint32_t kMost = 4 * 1024 * 1024;
  std::mt19937 random(1);
  std::vector<bool> in_use(kLive);
  MemoryRecording recording;
  for (std::size_t i = 0; i < pairs; ++i) {
    const auto slot = static_cast<std::uint32_t>(random() % kLive);
    if (in_use[slot]) {
      recording.push_back({slot, 0});
    }
    recording.push_back({slot, static_cast<std::uint32_t>(kLeast + random() % (kMost - kLeast))});
    in_use[slot] = true;
  }
  for (std::uint32_t slot = 0; slot < kLive; ++slot) {
    if (in_use[slot]) {
      recording.push_back({slot, 0});
    }
  }
  return recording;
}

void write_recording(const std::string& file, const MemoryRecording& recording) {
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(recording.data()),
            static_cast<std::streamsize>(recording.size() * sizeof(MemoryEvent)));
  if (!out.flush()) {
    throw std::runtime_error("cannot write " + file);
  }
}

MemoryRecording read_recording(const std::string& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  MemoryRecording recording(in ? static_cast<std::size_t>(in.tellg()) / sizeof(MemoryEvent) : 0);
  in.seekg(0);
  in.read(reinterpret_cast<char*>(recording.data()),
          static_cast<std::streamsize>(recording.size() * sizeof(MemoryEvent)));
  if (!in) {
    throw std::runtime_error("cannot read " + file);
  }
  return recording;
}

Played play(const MemoryRecording& recording, Player player, bool touches, int rounds) {
  if (player == Player::malloc) {
    const auto take = [](std::size_t bytes) {
      return static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    };
    return play_by(
        recording, take, [](std::byte* memory, std::size_t /*bytes*/) { std::free(memory); }, touches, rounds);
  }
  memory::SystemPages pages;
  memory::PagePool pool(pages);
  constexpr memory::MemoryUse kUse = memory::MemoryUse::frames;
  const auto take = [&pool](std::size_t bytes) { return pool.allocate(bytes, kUse); };
  return play_by(
      recording, take, [&pool](std::byte* memory, std::size_t bytes) { pool.free(memory, bytes, kUse); }, touches,
      rounds);
}

}  // namespace gradwire::bench
