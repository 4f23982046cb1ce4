// Runs a job here, with its events in a folder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradwire/session.hpp"
#include "watch/event_file.hpp"

namespace gradwire::test {

/// Runs four ranks as threads.
inline void run_job(std::size_t elements, const std::string& codec, int steps) {
  const auto world = make_inproc_world(4);
  std::vector<std::thread> threads;
  for (const auto& transport : world) {
    threads.emplace_back([&, transport] {
      std::vector<std::vector<float>> gradients(3, std::vector<float>(elements, 0.5F));
      Session session(transport, Policy::uniform(codec));
      std::vector<TensorId> ids;
      for (std::vector<float>& gradient : gradients) {
        ids.push_back(session.add("t" + std::to_string(ids.size()), {gradient.data(), gradient.size(), DType::f32}));
      }
      for (int step = 0; step < steps; ++step) {
        for (const TensorId id : ids) {
          session.ready(id);
        }
        session.finish();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// Makes five steps by frames and, in another session, five by the transport's own sums.
inline void trace_a_job(const std::filesystem::path& folder) {
  watch::EventFileOptions options;
  options.target.directory = folder.string();
  options.warn = [](const std::string& text) { ADD_FAILURE() << text; };
  const auto sink = std::make_shared<watch::EventFileSink>(std::move(options));
  observe::add_sink(sink);
  run_job(200'000, "int8", 5);
  run_job(100, "exact", 5);
  observe::remove_sink(sink);
}

}  // namespace gradwire::test
