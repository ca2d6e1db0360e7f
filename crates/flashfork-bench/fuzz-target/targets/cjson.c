/* cJSON: parses a text, and prints what it has understood. */
#include "cJSON.h"
#include <stdlib.h>

void warm_up(void)
{
}

void run_one_input(const unsigned char *input, size_t len)
{
	cJSON *json = cJSON_ParseWithLength((const char *)input, len);

	if (json == NULL)
		return;
	free(cJSON_Print(json));
	free(cJSON_PrintUnformatted(json));
	cJSON_Delete(json);
}
