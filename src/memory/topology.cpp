#include "memory/topology.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.hpp"
#include "base/units.hpp"
#include "gradwire/error.hpp"

#if GRADWIRE_HAVE_HWLOC
#include <dlfcn.h>
#include <hwloc.h>

#include <memory>
#endif

namespace gradwire::memory {

int count_memory_nodes() {
  std::error_code error;
  int nodes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename();
    nodes += name.starts_with("node") && name.find_first_not_of("0123456789", 4) == std::string::npos ? 1 : 0;
  }
  return std::max(nodes, 1);
}

#if GRADWIRE_HAVE_HWLOC
namespace {

// The functions of hwloc that are used here. Its inline functions call others, so they are not used.
class Hwloc {
 public:
  static const Hwloc& get() {
    static const Hwloc library;
    return library;
  }

  decltype(&hwloc_topology_init) init = nullptr;
  decltype(&hwloc_topology_destroy) destroy = nullptr;
  decltype(&hwloc_topology_set_synthetic) set_synthetic = nullptr;
  decltype(&hwloc_topology_set_xmlbuffer) set_xml = nullptr;
  decltype(&hwloc_topology_set_io_types_filter) set_io_filter = nullptr;
  decltype(&hwloc_topology_load) load = nullptr;
  decltype(&hwloc_get_type_depth) type_depth = nullptr;
  decltype(&hwloc_get_nbobjs_by_depth) count = nullptr;
  decltype(&hwloc_get_obj_by_depth) object = nullptr;
  decltype(&hwloc_bitmap_next) next = nullptr;

 private:
  Hwloc() {
    constexpr const char* kName = "libhwloc.so.15";  // hwloc 2
    library_ = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      const char* why = ::dlerror();
      throw Error(ErrorCode::unsupported, std::string("the topology of this host is not known: ") +
                                              (why != nullptr ? why : kName) +
                                              "; install hwloc 2 (Debian: libhwloc15)");
    }
    find(init, "hwloc_topology_init");
    find(destroy, "hwloc_topology_destroy");
    find(set_synthetic, "hwloc_topology_set_synthetic");
    find(set_xml, "hwloc_topology_set_xmlbuffer");
    find(set_io_filter, "hwloc_topology_set_io_types_filter");
    find(load, "hwloc_topology_load");
    find(type_depth, "hwloc_get_type_depth");
    find(count, "hwloc_get_nbobjs_by_depth");
    find(object, "hwloc_get_obj_by_depth");
    find(next, "hwloc_bitmap_next");
  }

  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    if (function == nullptr) {
      throw Error(ErrorCode::unsupported, std::string("libhwloc.so.15 has no ") + name + "; install hwloc 2");
    }
  }

  void* library_ = nullptr;
};

class Reader {
 public:
  template <typename Source>
  explicit Reader(Source&& source) {
    hwloc_topology_t made = nullptr;
    if (hwloc_.init(&made) != 0) {
      throw Error(ErrorCode::unsupported, "hwloc: a topology cannot be made");
    }
    topology_.reset(made);
    source(hwloc_, made);
    hwloc_.set_io_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_.load(made) != 0) {
      throw Error(ErrorCode::unsupported, "hwloc: the topology cannot be loaded");
    }
  }

  [[nodiscard]] Topology read() const {
    Topology topology;
    for_each(HWLOC_OBJ_NUMANODE, [&](hwloc_obj_t node) {
      topology.nodes.push_back({node->os_index, node->attr->numanode.local_memory, processors(node->cpuset)});
    });
    std::sort(topology.nodes.begin(), topology.nodes.end(),
              [](const Topology::Node& a, const Topology::Node& b) { return a.number < b.number; });
    for_each(HWLOC_OBJ_CORE, [&](hwloc_obj_t core) { topology.cores.push_back({processors(core->cpuset)}); });
    for_each(HWLOC_OBJ_OS_DEVICE, [&](hwloc_obj_t device) {
      const hwloc_obj_osdev_type_t type = device->attr->osdev.type;
      if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS) {
        return;
      }
      hwloc_obj_t near = device;
      while (near != nullptr && near->nodeset == nullptr) {  // devices have none of their own
        near = near->parent;
      }
      if (const int node = near == nullptr ? -1 : hwloc_.next(near->nodeset, -1); node >= 0) {
        topology.cards.push_back({device->name, static_cast<unsigned>(node)});
      }
    });
    return topology;
  }

 private:
  template <typename Body>
  void for_each(hwloc_obj_type_t type, Body&& body) const {
    const int depth = hwloc_.type_depth(topology_.get(), type);
    for (unsigned i = 0; i < hwloc_.count(topology_.get(), depth); ++i) {
      body(hwloc_.object(topology_.get(), depth, i));
    }
  }

  [[nodiscard]] Processors processors(hwloc_const_bitmap_t set) const {
    Processors found;
    for (int processor = hwloc_.next(set, -1); processor >= 0; processor = hwloc_.next(set, processor)) {
      found.push_back(static_cast<unsigned>(processor));
    }
    return found;
  }

  struct Destroy {
    void operator()(hwloc_topology_t topology) const { Hwloc::get().destroy(topology); }
  };
  const Hwloc& hwloc_ = Hwloc::get();
  std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy> topology_;
};

}  // namespace

Topology read_topology() {
  return Reader([](const Hwloc&, hwloc_topology_t) {}).read();
}

Topology synthetic_topology(const std::string& description) {
  return Reader([&](const Hwloc& hwloc, hwloc_topology_t topology) {
           if (hwloc.set_synthetic(topology, description.c_str()) != 0) {
             throw Error(ErrorCode::invalid_argument,
                         "hwloc takes no topology \"" + description + "\"; write \"package:2 numanode:1 core:4 pu:1\"");
           }
         })
      .read();
}

Topology topology_from_xml(const std::string& xml) {
  return Reader([&](const Hwloc& hwloc, hwloc_topology_t topology) {
           if (hwloc.set_xml(topology, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0) {
             throw Error(ErrorCode::invalid_argument,
                         "hwloc cannot read this XML; it reads what lstopo --of xml writes");
           }
         })
      .read();
}

#else

namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "the topology of this host is not known: gradwire was built without hwloc; install its header (Debian: "
              "libhwloc-dev) and build again");
}

}  // namespace

Topology read_topology() { refuse(); }
Topology synthetic_topology(const std::string& /*description*/) { refuse(); }
Topology topology_from_xml(const std::string& /*xml*/) { refuse(); }

#endif

std::string draw(const Topology& topology, const Processors& processors) {
  const auto usable = [&](unsigned processor) {
    return std::find(processors.begin(), processors.end(), processor) != processors.end();
  };
  std::string text;
  for (const Topology::Node& node : topology.nodes) {
    text += "memory node " + std::to_string(node.number) + (node.bytes > 0 ? ", " + format_bytes(node.bytes) : "");
    for (const Topology::Card& card : topology.cards) {
      text += card.node == node.number ? ", " + card.name : "";
    }
    text += "\n  cores";
    for (const Topology::Core& core : topology.cores) {
      const bool near = !core.processors.empty() && std::find(node.processors.begin(), node.processors.end(),
                                                              core.processors.front()) != node.processors.end();
      if (!near) {
        continue;
      }
      text += " [";
      for (std::size_t i = 0; i < core.processors.size(); ++i) {
        text += (i > 0 ? " " : "") + std::to_string(core.processors[i]) + (usable(core.processors[i]) ? "*" : "");
      }
      text += "]";
    }
    text += '\n';
  }
  return text;
}

}  // namespace gradwire::memory
