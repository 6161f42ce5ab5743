// Whether work was done on the device since the guard zones were last looked at.
#pragma once

#include <string>

namespace npu_cann {

void note_device_work();

// Looks at the guard zones: always, or only where there was work. "" or the damage, reported already.
std::string check_guards(const char* when, bool always);

}  // namespace npu_cann
