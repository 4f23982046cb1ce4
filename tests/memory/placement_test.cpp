// Tests on machines that hwloc makes up: on which memory node buffers go, and where background threads run.
#include "memory/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <barrier>
#include <numeric>
#include <string>
#include <thread>

#include "gradwire/error.hpp"
#include "memory/background_threads.hpp"
#include "memory/page_source.hpp"
#include "memory/topology.hpp"

namespace gradwire::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Processors range(unsigned first, unsigned count) {
  Processors processors(count);
  std::iota(processors.begin(), processors.end(), first);
  return processors;
}

Topology two_nodes() {
  Topology topology;
  topology.nodes = {{.number = 0, .bytes = 1ULL << 30, .processors = range(0, 4)},
                    {.number = 1, .bytes = 1ULL << 30, .processors = range(4, 4)}};
  for (unsigned core = 0; core < 8; ++core) {
    topology.cores.push_back({.processors = {core}});
  }
  return topology;
}

TEST(Placement, OneNodeBindsNothing) {
  Topology topology = two_nodes();
  topology.nodes.pop_back();
  const Placement placement = place(topology, {0, 1});
  EXPECT_FALSE(placement.node);
  EXPECT_THAT(placement.threads, IsEmpty());
  EXPECT_THAT(placement.why, HasSubstr("one memory node"));
}

// Ranks that may run everywhere would all put their threads on the same core.
TEST(Placement, UnboundRanksBindNothing) {
  const Placement placement = place(two_nodes(), range(0, 8));
  EXPECT_FALSE(placement.node);
  EXPECT_THAT(placement.threads, IsEmpty());
  EXPECT_THAT(placement.why, HasSubstr("every core"));
}

TEST(Placement, ThreadsStayInsideTheBindingAndLeaveCoresToTheRank) {
  EXPECT_THAT(place(two_nodes(), {0, 1}).threads, ElementsAre(1));
  EXPECT_EQ(place(two_nodes(), {0, 1}).most_ranks, 4);
  EXPECT_EQ(place(two_nodes(), {0, 1, 2, 3}).most_ranks, 2) << "more ranks would share these cores";
  EXPECT_THAT(place(two_nodes(), {4, 5, 6, 7}).threads, ElementsAre(7));
  EXPECT_THAT(place(two_nodes(), {5}).threads, IsEmpty());
  EXPECT_EQ(place(two_nodes(), {5}).node, 1U);
  EXPECT_EQ(place(two_nodes(), {3, 4, 5}).node, 1U) << "most of its processors are there";
  EXPECT_THAT(place(two_nodes(), {3, 4, 5}).threads, ElementsAre(5));
}

TEST(Placement, TheCardDecidesBetweenEqualNodes) {
  Topology topology = two_nodes();
  topology.cards = {{.name = "eth0", .node = 1}};
  EXPECT_EQ(place(topology, {3, 4}).node, 0U);
  EXPECT_EQ(place(topology, {3, 4}, "eth0").node, 1U);
  EXPECT_EQ(place(topology, {2, 3, 4}, "eth0").node, 0U) << "most of its processors count first";
}

TEST(Placement, WhereNothingIsBoundTheCallsDoNothing) {
  const Processors before = own_processors();
  bind_this_thread({});
  bind_memory({}, nullptr, 0);
  EXPECT_EQ(own_processors(), before);
  EXPECT_THAT(before, ::testing::Not(IsEmpty()));
  EXPECT_FALSE(own_placement().why.empty());
}

// Node 0 is there on every machine. Mutation tried: the source forgets the placement.
std::vector<unsigned> processors_of_this_thread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(::sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<unsigned> all;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) {
      all.push_back(i);
    }
  }
  return all;
}

// Mutation tried: only threads that begin later are bound.
TEST(Placement, BackgroundThreadsAreBoundBeforeAndAfterTheyBegin) {
  const Processors own = own_processors();
  ASSERT_FALSE(own.empty());
  const Placement last{.node = {}, .threads = {own.back()}, .most_ranks = 1, .why = {}};
  std::barrier meet(2);
  std::vector<unsigned> before, bound, later, alone;
  std::thread early([&] {
    const BackgroundThread background;
    before = processors_of_this_thread();
    meet.arrive_and_wait();
    meet.arrive_and_wait();
    bound = processors_of_this_thread();
  });
  meet.arrive_and_wait();
  bind_background_threads(&last);
  meet.arrive_and_wait();
  early.join();
  std::thread([&] {
    const BackgroundThread background;
    later = processors_of_this_thread();
  }).join();
  bind_background_threads(nullptr);
  std::thread([&] {
    const BackgroundThread background;
    alone = processors_of_this_thread();
  }).join();
  EXPECT_EQ(before, own);
  EXPECT_EQ(bound, std::vector{own.back()});
  EXPECT_EQ(later, std::vector{own.back()});
  EXPECT_EQ(alone, own);
  EXPECT_EQ(processors_of_this_thread(), own) << "a thread that is none of them was bound";
}

TEST(Placement, PagesOfThePoolAreAskedForOnItsNode) {
  const Placement placement{.node = 0, .threads = {}, .why = {}};
  SystemPages pages;
  for (const bool binds : {true, false}) {
    pages.bind_to(binds ? &placement : nullptr);
    std::byte* const memory = pages.map(kRegionBytes, HugePages::off);
    ASSERT_NE(memory, nullptr);
    int policy = -1;
    unsigned long nodes = 0;
    constexpr unsigned long kOfAddress = 2;  // MPOL_F_ADDR
    if (::syscall(SYS_get_mempolicy, &policy, &nodes, 64UL, memory, kOfAddress) != 0) {
      GTEST_SKIP() << "this kernel knows no memory policy";
    }
    EXPECT_EQ(policy, binds ? MPOL_PREFERRED : MPOL_DEFAULT);
    EXPECT_EQ(nodes, binds ? 1U : 0U);
    pages.unmap(memory, kRegionBytes);
  }
}

#if GRADWIRE_HAVE_HWLOC

// Ranks of one socket each, of half a socket, and of a core: which node, and which processors, for every rank.
TEST(Topology, PlacesEveryRankOfSyntheticMachines) {
  struct Machine {
    const char* description;
    unsigned sockets;
    unsigned cores;    // of a socket
    unsigned threads;  // of a core
  };
  for (const Machine& machine :
       {Machine{"package:2 numanode:1 core:4 pu:2", 2, 4, 2}, Machine{"package:4 numanode:1 core:16 pu:1", 4, 16, 1}}) {
    const Topology topology = synthetic_topology(machine.description);
    ASSERT_EQ(topology.nodes.size(), machine.sockets);
    ASSERT_EQ(topology.cores.size(), std::size_t{machine.sockets} * machine.cores);
    for (const unsigned share : {machine.cores, machine.cores / 2, 1U}) {  // cores of a rank
      for (unsigned first = 0; first < machine.sockets * machine.cores; first += share) {
        const Processors bound = range(first * machine.threads, share * machine.threads);
        const Placement placement = place(topology, bound);
        EXPECT_EQ(placement.node, first / machine.cores) << machine.description << ", core " << first;
        const unsigned last = share == 1 ? 0 : std::max(1U, share / 8);
        EXPECT_EQ(placement.threads,
                  share == 1 ? Processors{} : range((first + share - last) * machine.threads, last * machine.threads))
            << machine.description << ", core " << first;
      }
    }
  }
}

// A machine of two sockets in the XML of lstopo, with a network card at the second.
std::string machine_with_card() {
  const auto set = [](const std::string& cpus, const std::string& nodes) {
    return "cpuset=\"" + cpus + "\" complete_cpuset=\"" + cpus + "\" nodeset=\"" + nodes + "\" complete_nodeset=\"" +
           nodes + "\"";
  };
  int id = 1;
  const auto object = [&](const std::string& type, const std::string& more) {
    return "<object type=\"" + type + "\" gp_index=\"" + std::to_string(id++) + "\" " + more + ">\n";
  };
  std::string text =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
      "<topology version=\"2.0\">\n" +
      object("Machine", "os_index=\"0\" " + set("0xf", "0x3") + " allowed_cpuset=\"0xf\" allowed_nodeset=\"0x3\"");
  for (const int socket : {0, 1}) {
    const std::string number = std::to_string(socket);
    const std::string nodes = socket == 0 ? "0x1" : "0x2";
    text += object("Package", "os_index=\"" + number + "\" " + set(socket == 0 ? "0x3" : "0xc", nodes));
    text += object("NUMANode", "os_index=\"" + number + "\" " + set(socket == 0 ? "0x3" : "0xc", nodes) +
                                   " local_memory=\"1073741824\"") +
            "</object>";
    for (int core = 2 * socket; core < 2 * socket + 2; ++core) {
      const std::string cpus = core == 0 ? "0x1" : core == 1 ? "0x2" : core == 2 ? "0x4" : "0x8";
      const std::string index = "os_index=\"" + std::to_string(core) + "\" ";
      text += object("Core", index + set(cpus, nodes)) + object("PU", index + set(cpus, nodes)) + "</object></object>";
    }
    if (socket == 1) {
      text += object("Bridge", "bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-01]\"") +
              object("PCIDev",
                     "pci_busid=\"0000:01:00.0\" pci_type=\"0200 [8086:1572] [0000:0000] 01\" pci_link_speed=\"0\"") +
              object("OSDev", "name=\"eth0\" osdev_type=\"2\"") + "</object></object></object>";
    }
    text += "</object>";
  }
  return text + "</object>\n</topology>\n";
}

TEST(Topology, KnowsTheNodeOfANetworkCard) {
  const Topology topology = topology_from_xml(machine_with_card());
  ASSERT_EQ(topology.cards.size(), 1U);
  EXPECT_EQ(topology.cards[0].name, "eth0");
  EXPECT_EQ(topology.cards[0].node, 1U);
  EXPECT_EQ(place(topology, {1, 2}, "eth0").node, 1U);
  EXPECT_EQ(draw(topology, {2}),
            "memory node 0, 1GiB\n  cores [0] [1]\n"
            "memory node 1, 1GiB, eth0\n  cores [2*] [3]\n");
}

TEST(Topology, RefusesWhatHwlocCannotRead) {
  EXPECT_THROW((void)synthetic_topology("no such:thing"), Error);
  EXPECT_THROW((void)topology_from_xml("<nothing/>"), Error);
}

TEST(Topology, ReadsThisMachine) {
  const Topology topology = read_topology();
  EXPECT_GE(topology.nodes.size(), 1U);
  EXPECT_GE(topology.cores.size(), 1U);
  EXPECT_THAT(draw(topology), HasSubstr("memory node"));
}

#else

TEST(Topology, IsRefusedWithoutHwloc) { EXPECT_THROW((void)read_topology(), Error); }

#endif

}  // namespace
}  // namespace gradwire::memory
