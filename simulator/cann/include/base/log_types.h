// Numbers of CANN's modules in its log. Only that of operators is used.
#pragma once

enum { OP = 63 };
